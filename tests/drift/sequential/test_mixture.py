"""The fast recursion against the sum as it is defined."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edge_agent.drift.sequential.mixture import Evidence, advance, statistics
from edge_agent.drift.sequential.table import TILTS, WEIGHTS

HIGH = 500.0


def drawn(rows: int, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    return rng.normal(-0.3, 1.0, (rows, TILTS)), rng.exponential(size=rows)


def by_definition(increments: NDArray[np.float64]) -> NDArray[np.float64]:
    """After each sample: log of the mixture of sums over all begins of the likelihood ratio since then."""
    found = []
    for end in range(1, len(increments) + 1):
        ratios = np.exp(np.cumsum(increments[:end][::-1], axis=0)).sum(axis=0)
        found.append(np.log(WEIGHTS @ ratios))
    return np.array(found)


@given(rows=st.integers(1, 90), seed=st.integers(0, 999))
@settings(max_examples=30)
def test_the_statistic_is_the_largest_sum_over_all_begins(rows: int, seed: int) -> None:
    increments, levels = drawn(rows, seed)
    _, statistic = advance(Evidence.none(), increments, levels, HIGH)
    assert statistic == pytest.approx(by_definition(increments).max(), abs=1e-9)


@given(rows=st.integers(2, 120), cuts=st.lists(st.integers(1, 119), max_size=4), seed=st.integers(0, 999))
@settings(max_examples=50)
def test_how_samples_are_cut_into_calls_does_not_matter(rows: int, cuts: list[int], seed: int) -> None:
    increments, levels = drawn(rows, seed)
    whole, largest = advance(Evidence.none(), increments, levels, HIGH)
    borders = [0, *sorted({cut for cut in cuts if cut < rows}), rows]
    evidence, found = Evidence.none(), []
    for start, stop in pairwise(borders):
        evidence, statistic = advance(evidence, increments[start:stop], levels[start:stop], HIGH)
        found.append(statistic)
    assert max(found) == pytest.approx(largest, abs=1e-9)
    np.testing.assert_allclose(evidence.sums, whole.sums, rtol=1e-9)
    np.testing.assert_allclose(evidence.climbs, whole.climbs, atol=1e-9)
    np.testing.assert_array_equal(evidence.runs, whole.runs)
    np.testing.assert_allclose(evidence.losses, whole.losses, atol=1e-9)


@given(rows=st.integers(1, 60), seed=st.integers(0, 999))
@settings(max_examples=30)
def test_runs_are_counted_since_the_lowest_point(rows: int, seed: int) -> None:
    increments, levels = drawn(rows, seed)
    evidence, _ = advance(Evidence.none(), increments, levels, HIGH)
    paths = np.concatenate([np.zeros((1, TILTS)), np.cumsum(increments, axis=0)])
    for tilt in range(TILTS):
        lowest = rows - int(np.argmin(paths[::-1, tilt]))
        assert evidence.runs[tilt] == rows - lowest
        assert evidence.losses[tilt] == pytest.approx(levels[lowest:].sum())
        assert evidence.climbs[tilt] == pytest.approx(paths[-1, tilt] - paths[lowest, tilt])


def test_many_streams_at_once_are_judged_as_each_alone() -> None:
    rng = np.random.default_rng(0)
    increments = rng.normal(-0.2, 1.0, (20, TILTS))
    numbers = rng.integers(0, 20, (4, 6, 40))
    together = statistics(np.exp(increments), numbers)
    for stream, found in zip(numbers, together, strict=True):
        evidence = Evidence.none()
        for batch, statistic in zip(stream, found, strict=True):
            evidence, alone = advance(evidence, increments[batch], np.ones(40), HIGH)
            assert alone == pytest.approx(statistic, abs=1e-9)


def test_evidence_is_cut_down_and_stays_finite() -> None:
    evidence = Evidence.none()
    for _ in range(50):
        evidence, statistic = advance(evidence, np.full((64, TILTS), 9.0), np.ones(64), 10.0)
        assert np.isfinite(statistic)
    assert np.log(evidence.sums.sum()) == pytest.approx(10.0)
    assert (evidence.climbs <= 20.0).all()
