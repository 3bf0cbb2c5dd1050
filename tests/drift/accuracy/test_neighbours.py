"""Streams whose neighbours resemble each other are estimated; what changes within a window is refused all the same."""

import numpy as np
import pytest

from edge_agent.drift.accuracy.monitor import AccuracyParams, AccuracyState
from edge_agent.drift.accuracy.neighbours import ORDERED_ROWS, halves_limit, inflations
from tests.drift.accuracy.neighbouring import FEATURES, WINDOW, World, autoregressive


@pytest.mark.parametrize("phi", [0.3, 0.7, 0.9])
def test_an_unchanged_stream_of_neighbours_that_resemble_each_other_is_estimated(phi: float) -> None:
    """Seeds 100 to 102, 20 windows each. At 1 refused in 20 more than 8 of 60 have probability 0.003; it is 1 in 70.
    With rows taken for independent, 1, 94 and all of 120 windows were refused."""
    refused = []
    for seed in range(100, 103):
        world = World(phi, seed)
        refused += [one.refused for one in world.windows(world.calibrated(2000), 20)]
    assert sum(refused) <= 8


@pytest.mark.parametrize("phi", [0.0, 0.6])
def test_a_change_in_the_middle_of_a_window_is_refused_all_the_same(phi: float) -> None:
    """Seeds 7 to 16: half a window lies one deviation off in three of eight sensors."""
    refusals = []
    for seed in range(7, 17):
        world = World(phi, seed)
        params = world.calibrated(1000)
        window = autoregressive(WINDOW, phi, world.rng)
        window[WINDOW // 2 :, :3] += 1.0
        refusals.append(world.judged(params, window).refusal)
    assert refusals.count("passing") + refusals.count("unlike") >= 9


def test_a_reference_without_any_order_takes_rows_for_independent() -> None:
    world = World(0.9, 3)
    params = world.calibrated(1000, shuffled=True)
    assert params.passing_limit <= 1.1 * params.changed_limit
    assert np.mean(params.inflations == 1.0) > 0.9


def test_of_a_long_reference_rows_in_a_row_are_looked_at() -> None:
    """4,000 of 8,200 are taken otherwise, two apart: of AR(1) 0.9 those have half the inflation."""
    world = World(0.9, 4)
    params = world.calibrated(ORDERED_ROWS + 8)
    assert np.median(params.inflations[4:]) == pytest.approx((1 + 0.9**2) / (1 - 0.9**2), rel=0.4)


def test_a_bundle_that_was_built_before_takes_rows_for_independent_as_it_did() -> None:
    world = World(0.8, 5)
    params = world.calibrated(600)
    spec, arrays = params.to_spec(), params.to_arrays()
    scalars = {name: value for name, value in spec.parameters.items() if name not in ("passing_limit", "single")}
    older = spec.model_copy(update={"parameters": scalars})
    kept = {name: one for name, one in arrays.items() if name not in ("inflations", "own")}
    found = AccuracyParams.from_spec(older, kept)
    assert found.passing_limit == params.changed_limit < params.passing_limit
    assert (found.inflations == 1.0).all()
    world.judged(found, autoregressive(WINDOW, 0.8, world.rng))


def test_a_bundle_that_was_built_before_looks_at_no_input_by_itself() -> None:
    params = World(0.6, 5).calibrated(600)
    spec, arrays = params.to_spec(), params.to_arrays()
    scalars = {name: value for name, value in spec.parameters.items() if name != "single"}
    signals = len(params.map.middle)
    kept = {name: one for name, one in arrays.items() if name != "own"} | {"inflations": params.inflations[:signals]}
    found = AccuracyParams.from_spec(spec.model_copy(update={"parameters": scalars}), kept)
    assert found.passing_limit == params.passing_limit
    assert len(AccuracyState.start(found).totals) == len(AccuracyState.start(params).totals) - FEATURES


def test_a_step_between_two_windows_is_not_what_halves_differ_by() -> None:
    """Seed 6: nine columns of independent rows, one of which stands elsewhere in the second of two windows."""
    rows = np.random.default_rng(6).normal(size=(1000, 9))
    stepped = rows + np.repeat([[0.0] * 9, [2.0] + [0.0] * 8], WINDOW, axis=0)
    stepped[:, 0] /= stepped[:, 0].std()
    assert halves_limit(np.eye(9), stepped, WINDOW) <= 1.2 * halves_limit(np.eye(9), rows, WINDOW)


def test_inflations_of_squares_are_widened_by_how_few_rows_tell_them() -> None:
    """Seed 8: an AR(1)'s squares have correlations phi^(2 k)."""
    rng = np.random.default_rng(8)
    truth = (1 + 0.8**2) / (1 - 0.8**2)
    many, few = (autoregressive(rows, 0.8, rng) for rows in (8000, 500))
    assert np.median(inflations(many, many**2)) == pytest.approx(truth, rel=0.3)
    assert np.median(inflations(few, few**2)[:FEATURES]) > truth
    assert (inflations(np.ones((600, 2)), np.ones((600, 3))) == np.ones(5)).all()


def test_what_nothing_was_fitted_to_is_not_widened() -> None:
    few = autoregressive(500, 0.8, np.random.default_rng(9))
    found = inflations(few, few**2)
    assert (found[FEATURES:] < found[:FEATURES]).all()


def test_halves_of_what_never_varies_are_not_apart() -> None:
    assert halves_limit(np.eye(3), np.ones((600, 3)), WINDOW) == 0.0


@pytest.mark.parametrize("phi", [0.0, 0.9])
def test_few_independent_rows_do_not_look_as_if_they_spread_otherwise(phi: float) -> None:
    """Seeds 100 to 105, 500 rows, 40 windows each: of AR(1) 0.9 35 of 240 were `unlike`, of independent rows 8."""
    refusals: list[str] = []
    for seed in range(100, 106):
        world = World(phi, seed)
        refusals += [one.refusal for one in world.windows(world.calibrated(500), 40)]
    assert refusals.count("unlike") <= 24


@pytest.mark.parametrize("tampered", ["noisy", "still", "twice"])
def test_a_sensor_that_spreads_otherwise_is_seen_by_itself(tampered: str) -> None:
    """Seeds 20 to 29: one of eight independent sensors, which hardly shows along axes that it shares: by those alone a
    sensor with noise of its own size was refused in a quarter of windows, one that stands still in a seventh."""
    refusals = []
    for seed in range(20, 30):
        world = World(0.0, seed)
        params, window = world.calibrated(1000), autoregressive(WINDOW, 0.0, world.rng)
        noise = world.rng.normal(size=WINDOW)
        window[:, 3] = {"noisy": window[:, 3] + noise, "still": 0 * noise, "twice": 2 * window[:, 3]}[tampered]
        refusals.append(world.judged(params, window).refusal)
    assert all(refusals)
