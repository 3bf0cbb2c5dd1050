import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.samples.record import Label
from edge_agent.sources import due_labels
from edge_agent.sources.due_labels import DueLabels, InOrder, OutOfOrder

READS = st.lists(st.lists(st.sampled_from([0.0, 1.0, 2.5, math.nan, math.inf, -math.inf]), max_size=5), max_size=12)


def _played(labels: DueLabels, reads: list[list[float]], delays_s: float, rate_hz: float) -> list[list[Label]]:
    """What is due after each read, and a second at a time after the last."""
    given_back, number = [], 0
    for values in reads:
        ids = [f"s{number + place}" for place in range(len(values))]
        labels.schedule(number, ids, values, [delays_s] * len(values))
        number += len(values)
        given_back.append(labels.due(number / rate_hz))
    until_s = number / rate_hz
    while len(labels):
        assert labels.next_s <= until_s + delays_s + 1.0
        until_s += 1.0
        given_back.append(labels.due(until_s))
    return given_back


@given(READS, st.sampled_from([0.0, 0.1, 0.35, 2.0]), st.sampled_from([3.0, 10.0]))
def test_equal_delays_give_the_same_in_order_as_each_of_its_own(
    reads: list[list[float]], delay_s: float, rate_hz: float
) -> None:
    in_order = _played(InOrder(rate_hz, delay_s), reads, delay_s, rate_hz)
    assert in_order == _played(OutOfOrder(rate_hz), reads, delay_s, rate_hz)
    assert sum(map(len, in_order)) == sum(not math.isnan(value) for values in reads for value in values)


@pytest.mark.parametrize("labels", [InOrder(10.0, 5.0), OutOfOrder(10.0)])
def test_no_more_labels_wait_than_there_is_room_for(labels: DueLabels, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(due_labels, "LABELS_DUE_CAP", 5)
    for first in range(0, 9, 3):
        labels.schedule(first, [f"s{first + place}" for place in range(3)], [1.0] * 3, [5.0] * 3)
    assert len(labels) == 5
    assert [label.id for label in labels.due(1e9)] == [f"s{number}" for number in range(5)]
    assert len(labels) == 0
