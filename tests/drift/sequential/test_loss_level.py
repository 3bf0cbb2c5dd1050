"""The monitor: what it sees, and streams that are broken."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_agent.drift.sequential.loss_level import LossLevelState, rebaseline, step
from edge_agent.errors import DataError
from tests.drift.sequential.streams import SIZE, default_params, labelled, params_of, run
from tests.drift.streams import clean_losses, drifted_losses

PARAMS = default_params()


def test_batches_of_any_size_find_the_same() -> None:
    rng = np.random.default_rng(1)
    losses = np.concatenate([clean_losses(1800, rng), np.minimum(drifted_losses(4, rng), 1.9)])
    by_one = run(PARAMS, LossLevelState.start(PARAMS), losses, size=1)[1]
    by_many = run(PARAMS, LossLevelState.start(PARAMS), losses, size=52)[1]
    assert not any(finding.alarm for finding in by_one)
    assert max(f.statistic for f in by_one) == pytest.approx(max(f.statistic for f in by_many), abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_a_sudden_drift_is_found_in_its_first_batch_and_its_begin_too(seed: int) -> None:
    rng = np.random.default_rng(seed)
    state, quiet = run(PARAMS, LossLevelState.start(PARAMS), clean_losses(50 * SIZE, rng))
    assert not any(finding.alarm for finding in quiet)
    _, finding = step(PARAMS, state, labelled(np.append(clean_losses(12, rng), drifted_losses(20, rng))))
    assert finding.alarm
    assert finding.began_samples == pytest.approx(20, abs=4)
    assert finding.shift == "loss"
    (risen,) = finding.attributions
    assert risen.name == "loss"
    assert risen.now > 5 * risen.before


def test_a_drift_that_creeps_is_found_though_no_batch_differs_from_the_one_before() -> None:
    # The error rate goes from 4 % to 12 % over 6400 samples, 0.04 % a batch.
    rng = np.random.default_rng(3)
    wrong = rng.random(6400) < np.linspace(0.04, 0.12, 6400)
    losses = np.where(wrong, rng.exponential(3.0, 6400), rng.exponential(0.03, 6400))
    _, found = run(PARAMS, LossLevelState.start(PARAMS), losses)
    assert any(finding.alarm for finding in found)


def test_an_alarm_stands_while_the_level_is_risen_and_ends_soon_after() -> None:
    rng = np.random.default_rng(4)
    losses = np.concatenate([drifted_losses(100 * SIZE, rng), clean_losses(10 * SIZE, rng)])
    alarms = [finding.alarm for finding in run(PARAMS, LossLevelState.start(PARAMS), losses)[1]]
    assert all(alarms[:100])
    assert not any(alarms[103:])


def test_after_an_activation_the_new_level_is_the_one_that_must_not_rise() -> None:
    rng = np.random.default_rng(5)

    def worse(rows: int, share: float) -> NDArray[np.float64]:
        return clean_losses(rows, rng, error_rate=share)

    state, _ = run(PARAMS, LossLevelState.start(PARAMS), drifted_losses(10 * SIZE, rng))
    state = rebaseline(PARAMS, state)
    state, warming = run(PARAMS, state, worse(8 * SIZE, 0.2))
    assert all(finding.statistic == 0.0 and not finding.warning for finding in warming)
    state, settled = run(PARAMS, state, worse(60 * SIZE, 0.2))
    assert not any(finding.alarm for finding in settled)
    _, risen = run(PARAMS, state, worse(20 * SIZE, 0.7))
    assert any(finding.alarm for finding in risen[:4])
    assert all(finding.threshold == PARAMS.threshold for finding in (*settled, *risen))


def test_a_warm_up_of_broken_samples_keeps_the_reference() -> None:
    state = rebaseline(PARAMS, LossLevelState.start(PARAMS))
    state, _ = run(PARAMS, state, np.full(8 * SIZE, np.nan))
    assert state.warmup_left == 0
    np.testing.assert_array_equal(state.distribution.knots, PARAMS.distribution.knots)


@pytest.mark.parametrize(
    "reference",
    [
        np.repeat([0.0, 1e300, np.inf], [490, 5, 5]),
        np.zeros(500),
        np.full(500, 0.3),
        np.repeat([0.0, 1.0], [480, 20]),
        np.array([0.2]),
    ],
)
@pytest.mark.parametrize("value", [0.0, 0.3, 1.0, 1e300, math.inf, math.nan], ids=str)
def test_no_stream_breaks_it(reference: NDArray[np.float64], value: float) -> None:
    params = params_of(reference)
    state = LossLevelState.start(params)
    for _ in range(3):
        state, findings = run(params, state, np.full(100, value))
        assert all(math.isfinite(finding.statistic) for finding in findings)
        state = LossLevelState.from_arrays(params, rebaseline(params, state).to_arrays())


def test_outputs_that_are_not_finite_alarm_and_constant_losses_do_not() -> None:
    params = params_of(np.zeros(500))
    quiet = run(params, LossLevelState.start(params), np.zeros(200 * SIZE))[1]
    assert not any(finding.warning for finding in quiet)
    _, (broken,) = run(PARAMS, LossLevelState.start(PARAMS), np.full(SIZE, math.inf))
    assert broken.alarm
    assert broken.began_samples == SIZE


@pytest.mark.parametrize("losses", [np.array([]), np.zeros((2, 2))])
def test_no_batch_is_refused(losses: NDArray[np.float64]) -> None:
    with pytest.raises(DataError, match="a batch of losses"):
        step(PARAMS, LossLevelState.start(PARAMS), labelled(losses))
