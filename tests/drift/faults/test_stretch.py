"""Looks that are taken in together are bit for bit what they are one by one, whatever comes between them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edge_agent.drift.faults import FaultParams, FaultState, step
from edge_agent.drift.faults.stretch import Stretch
from edge_agent.drift.observed import Observed
from tests.drift.faults.sensors import Readings, manifest_of, observed, params_of, slow

SENSORS = 6
PARAMS = params_of(slow(3000, SENSORS, 1))
WHOLE = params_of(np.round(slow(3000, SENSORS, 1)))
WINDOWS = params_of(slow(3000, SENSORS, 1).reshape(300, 10, SENSORS), manifest_of((10, SENSORS)))


def one_by_one(
    params: FaultParams, state: FaultState, seen: Observed
) -> tuple[FaultState, NDArray[np.bool_], list[str]]:
    masks, told, size = [np.zeros((0, params.channels.columns), np.bool_)], [], params.rows_a_look
    for start in range(0, len(seen), size):
        some = seen.part(start, start + size)
        state, found = step(params, state, some)
        masks.append(np.zeros(some.features.shape, np.bool_) if found.faulty is None else found.faulty)
        told += [repr(report) for report in found.reports]
    return state, np.concatenate(masks), told


def assert_same(params: FaultParams, seen: Observed, cuts: list[int]) -> None:
    one = other = FaultState.start(params)
    for begin, end in zip([0, *cuts], [*cuts, len(seen)], strict=True):
        some = seen.part(begin, end)
        one, mask, told = one_by_one(params, one, some)
        other, found = step(params, other, some)
        assert [repr(report) for report in found.reports] == told
        assert np.array_equal(mask, np.zeros(mask.shape) if found.faulty is None else found.faulty)
        for name, array in one.to_arrays().items():
            assert array.tobytes() == other.to_arrays()[name].tobytes(), name
        assert one.calm == other.calm
        if begin % 2:
            other = FaultState.from_arrays(params, other.to_arrays())


def _spoilt(readings: Readings, what: str, rng: np.random.Generator) -> Readings:
    at, sensor = int(rng.integers(0, len(readings))), int(rng.integers(0, SENSORS))
    if what == "strays":
        readings[rng.integers(0, len(readings), 20), rng.integers(0, SENSORS, 20)] *= 1.3
    if what == "stuck":
        readings[at:, sensor] = readings[at, sensor]
    if what == "sentinels":
        readings[rng.integers(0, len(readings), 4), sensor] = -999.0
    if what == "missing":
        readings[at : at + 100, sensor] = np.nan
    if what == "unit":
        readings[at:, sensor] *= 10.0
    if what == "clipped":
        readings[:, sensor] = np.minimum(readings[:, sensor], np.quantile(readings[:, sensor], 0.7))
    return readings


@given(
    cuts=st.lists(st.integers(1, 1499), max_size=4, unique=True),
    seed=st.integers(0, 999),
    what=st.sampled_from(["calm", "strays", "stuck", "sentinels", "missing", "unit", "clipped"]),
    kind=st.sampled_from(["plain", "whole numbers", "windows"]),
)
@settings(max_examples=30, deadline=None)
def test_what_is_found_and_remembered_is_that_of_single_looks(cuts: list[int], seed: int, what: str, kind: str) -> None:
    rng = np.random.default_rng(seed)
    readings = _spoilt(slow(1500, SENSORS, seed), what, rng)
    if kind == "windows":
        assert_same(WINDOWS, observed(readings.reshape(150, 10, SENSORS)), sorted({cut // 10 for cut in cuts} - {0}))
    elif kind == "whole numbers":
        assert_same(WHOLE, observed(np.round(readings)), sorted(cuts))
    else:
        assert_same(PARAMS, observed(readings), sorted(cuts))


@pytest.mark.parametrize("when", [640, 700, 703])
@pytest.mark.parametrize("by_s", [-500.0, 1e5, np.nan])
def test_times_that_jump_are_looked_at_by_themselves(when: int, by_s: float) -> None:
    readings = slow(1500, SENSORS, 3)
    times = np.arange(1500, dtype=np.float64)
    times[when:] += by_s
    times[when + 1 :] = np.where(np.isnan(times[when + 1 :]), np.arange(when + 1, 1500), times[when + 1 :])
    assert_same(PARAMS, observed(readings, times), [320])


def test_a_calm_stream_is_taken_in_at_once() -> None:
    readings = slow(1500, SENSORS, 5)
    state, _ = step(PARAMS, FaultState.start(PARAMS), observed(readings[:64]))
    seen = observed(readings[64 : 64 + 8 * 64], np.arange(64.0, 576.0))
    stretch = Stretch.of(PARAMS, state, seen.features, seen.times_s)
    following, count = stretch.taken_in(state, 0)
    assert count == 8
    assert following.seen == 64 + 512


def test_inputs_of_several_kinds_keep_step() -> None:
    params = params_of(slow(3000, SENSORS, 1), manifest_of((2,), (4,)))
    several = params_of(np.concatenate([slow(600, 20, 5), slow(600, 3, 6)], axis=1), manifest_of((10, 2), (3,)))
    readings = _spoilt(slow(1500, SENSORS, 7), "strays", np.random.default_rng(7))
    assert_same(params, observed(readings), [400])
    mixed = np.concatenate([slow(600, 20, 8), slow(600, 3, 9)], axis=1)
    mixed[300:, 21] = 0.0
    assert len(several.parts) == 2
    assert_same(several, observed(mixed), [130])
