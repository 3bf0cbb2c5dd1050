"""The fast recursion against the sum as it is defined."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edge_agent.drift.sequential.mixture import BLOCK, RECENT, Evidence, advance, statistics
from edge_agent.drift.sequential.table import KINDS, TILTS, Table

HIGH = 500.0
BINS = 40


def drawn(rows: int, seed: int) -> tuple[Table, NDArray[np.int64], NDArray[np.float64]]:
    rng = np.random.default_rng(seed)
    slopes = np.where(np.arange(KINDS)[:, None] == np.arange(TILTS) % KINDS, 0.5, 0.0)
    increments, scores = rng.normal(-0.3, 1.0, (BINS, TILTS)), rng.normal(size=(BINS, KINDS))
    table = Table(increments, scores, slopes, rows=300.0, limit=0.1, weights=rng.dirichlet(np.ones(TILTS)))
    return table, rng.integers(0, BINS, rows), rng.exponential(size=rows)


def corrected(table: Table, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Increments, those of each block lowered by what all blocks but the latest 48 say."""
    found = table.increments[numbers].copy()
    for start in range(BLOCK * (RECENT + 1), len(numbers), BLOCK):
        old = start - BLOCK * RECENT
        means = table.scores[numbers[:old]].sum(axis=0) / (table.rows + old)
        found[start : start + BLOCK] -= np.clip(means, -table.limit, table.limit) @ table.slopes
    return found


def by_definition(increments: NDArray[np.float64], weights: NDArray[np.float64]) -> NDArray[np.float64]:
    """After each sample: log of the mixture of sums over all begins of the likelihood ratio since then."""
    found = []
    for end in range(1, len(increments) + 1):
        ratios = np.exp(np.cumsum(increments[:end][::-1], axis=0)).sum(axis=0)
        found.append(np.log(weights @ ratios))
    return np.array(found)


@given(rows=st.one_of(st.integers(1, 90), st.integers(1569, 1700)), seed=st.integers(0, 999))
@settings(max_examples=12, deadline=None)
def test_the_statistic_is_the_largest_sum_over_all_begins(rows: int, seed: int) -> None:
    table, numbers, levels = drawn(rows, seed)
    _, statistic = advance(Evidence.none(), table, numbers, levels, HIGH)
    assert statistic == pytest.approx(by_definition(corrected(table, numbers), table.weights).max(), abs=1e-8)


@given(rows=st.integers(2, 1700), cuts=st.lists(st.integers(1, 1699), max_size=4), seed=st.integers(0, 999))
@settings(max_examples=30, deadline=None)
def test_how_samples_are_cut_into_calls_does_not_matter(rows: int, cuts: list[int], seed: int) -> None:
    table, numbers, levels = drawn(rows, seed)
    whole, largest = advance(Evidence.none(), table, numbers, levels, HIGH)
    borders = [0, *sorted({cut for cut in cuts if cut < rows}), rows]
    evidence, found = Evidence.none(), []
    for start, stop in pairwise(borders):
        evidence, statistic = advance(evidence, table, numbers[start:stop], levels[start:stop], HIGH)
        found.append(statistic)
    assert max(found) == pytest.approx(largest, abs=1e-8)
    np.testing.assert_allclose(evidence.sums, whole.sums, rtol=1e-8)
    np.testing.assert_allclose(evidence.climbs, whole.climbs, atol=1e-8)
    np.testing.assert_array_equal(evidence.runs, whole.runs)
    np.testing.assert_allclose(evidence.losses, whole.losses, atol=1e-8)
    assert evidence.past.count == rows
    np.testing.assert_allclose(evidence.past.old, whole.past.old, atol=1e-8)


@given(rows=st.integers(1, 60), seed=st.integers(0, 999))
@settings(max_examples=30)
def test_runs_are_counted_since_the_lowest_point(rows: int, seed: int) -> None:
    table, numbers, levels = drawn(rows, seed)
    evidence, _ = advance(Evidence.none(), table, numbers, levels, HIGH)
    paths = np.concatenate([np.zeros((1, TILTS)), np.cumsum(table.increments[numbers], axis=0)])
    for tilt in range(TILTS):
        lowest = rows - int(np.argmin(paths[::-1, tilt]))
        assert evidence.runs[tilt] == rows - lowest
        assert evidence.losses[tilt] == pytest.approx(levels[lowest:].sum())
        assert evidence.climbs[tilt] == pytest.approx(paths[-1, tilt] - paths[lowest, tilt])


@pytest.mark.parametrize("size", [1, 32, 45])
def test_many_streams_at_once_are_judged_as_each_alone(size: int) -> None:
    table, _, _ = drawn(1, 0)
    numbers = np.random.default_rng(0).integers(0, BINS, (3, 1700 // size, size))
    for stream, found in zip(numbers, statistics(table, numbers), strict=True):
        evidence = Evidence.none()
        for batch, statistic in zip(stream, found, strict=True):
            evidence, alone = advance(evidence, table, batch, np.ones(size), HIGH)
            assert alone == pytest.approx(statistic, abs=1e-8)


def test_evidence_is_cut_down_and_stays_finite() -> None:
    zeros, same = np.zeros((KINDS, TILTS)), np.full(TILTS, 1 / TILTS)
    table = Table(np.full((1, TILTS), 9.0), np.zeros((1, KINDS)), zeros, rows=300.0, limit=0.1, weights=same)
    evidence = Evidence.none()
    for _ in range(50):
        evidence, statistic = advance(evidence, table, np.zeros(64, np.int64), np.ones(64), 10.0)
        assert np.isfinite(statistic)
    assert np.log(evidence.sums.sum()) == pytest.approx(10.0)
    assert (evidence.climbs <= 20.0).all()
    assert np.isfinite(statistics(table, np.zeros((2, 100, 64), np.int64))).all()
