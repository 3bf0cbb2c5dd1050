"""Samples side by side are known to be finite only where all of them are."""

from dataclasses import replace

import numpy as np
import pytest

from edge_agent.drift.observed import Observed
from edge_agent.runtime.watch_batches import BATCHES_REMEMBERED, TOGETHER_ROWS, ServedBatches, joined, observed
from edge_agent.serving.server import Served
from tests.runtime.bench import samples


def piece(first: int, count: int, *, finite: bool = True) -> Observed:
    numbers = np.arange(first, first + count, dtype=np.float64)
    return Observed(
        [f"s{number:.0f}" for number in numbers], numbers, numbers[:, None], numbers[:, None], finite=finite
    )


@pytest.mark.parametrize("screened", [False, True])
def test_readings_that_were_screened_are_known_to_be_finite(screened: bool) -> None:
    batch = replace(samples(0, 4), screened=screened)
    served = Served(np.zeros((4, 3), np.float32), "c" * 64, "a" * 64, 1, "root")
    assert observed(batch, served, ["x"]).finite is screened


def test_one_portion_that_is_not_known_makes_the_whole_unknown() -> None:
    assert joined([piece(0, 2), piece(2, 3)]).finite
    assert not joined([piece(0, 2), piece(2, 3, finite=False)]).finite


def test_whole_batches_that_wait_are_taken_at_once_up_to_a_limit_and_in_their_order() -> None:
    waiting = ServedBatches(32)
    for first in range(0, TOGETHER_ROWS + 100, 50):
        waiting.add(piece(first, 50))
    taken = []
    while (whole := waiting.take()) is not None:
        assert len(whole) % 32 == 0
        assert len(whole) <= TOGETHER_ROWS
        taken += whole.ids
    assert taken == [f"s{number}" for number in range(len(taken))]
    assert len(waiting) < 32


def test_more_batches_than_are_remembered_wait_again_after_a_failure() -> None:
    waiting, rows = ServedBatches(2), 2 * BATCHES_REMEMBERED + 100
    waiting.add(piece(0, rows))
    while waiting.take() is not None:
        pass
    waiting.rewind()
    whole = waiting.take()
    assert whole is not None
    assert whole.ids == [f"s{number}" for number in range(rows)]
    assert waiting.began(None).id == f"s{rows - 2}"
