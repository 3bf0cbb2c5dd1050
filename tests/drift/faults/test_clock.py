from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_agent.drift.faults import FaultReport, FaultState, Kind, step
from tests.drift.faults.sensors import observed, params_of, slow

PARAMS = params_of(slow(600, 2, 1))


def told(times_s: NDArray[np.floating[Any]], batch: int) -> list[FaultReport]:
    state = FaultState.start(PARAMS)
    reports: list[FaultReport] = []
    readings = slow(len(times_s), 2, 3)
    for start in range(0, len(times_s), batch):
        stop = start + batch
        state, found = step(PARAMS, state, observed(readings[start:stop], np.asarray(times_s[start:stop], np.float64)))
        reports += found.reports
        assert found.faulty is None, "a time says nothing of a reading"
    return reports


@pytest.mark.parametrize("batch", [1, 7, 64])
def test_a_gap_is_told_once_with_its_length(batch: int) -> None:
    times = np.arange(400) * 2.0
    times[210:] += 5000.0
    found = told(times, batch)
    assert [(one.kind, one.since_s, one.until_s, one.value) for one in found] == [(Kind.GAP, 418.0, 5420.0, 5002.0)]


@pytest.mark.parametrize("batch", [1, 7, 64])
def test_a_clock_that_is_set_back_is_told_once(batch: int) -> None:
    times = 1e9 + np.arange(400) * 0.1
    times[210:] -= 3600.0
    found = told(times, batch)
    assert [(one.kind, one.sensor, one.name) for one in found] == [(Kind.CLOCK, -1, "time")]
    assert found[0].value == pytest.approx(-3599.9)


@pytest.mark.parametrize("batch", [1, 7, 64])
def test_samples_that_overtake_or_share_a_time_are_no_fault(batch: int) -> None:
    times = np.arange(400, dtype=np.float64)
    times[100:300:10] -= 3.0
    times[300:] = np.repeat(times[300::2], 2)
    assert told(times, batch) == []


@pytest.mark.parametrize("batch", [1, 32])
def test_uneven_times_are_no_gaps(batch: int) -> None:
    """Exponential steps: 5000 of them, the longest about 9 times the usual; seed 0."""
    assert told(np.cumsum(np.random.default_rng(0).exponential(60.0, 5000)), batch) == []


def test_times_that_are_none_are_passed_over() -> None:
    times = np.arange(200, dtype=np.float64)
    times[50] = np.nan
    times[60] = np.inf
    assert [one.kind for one in told(times, 32)] == []
