import math

import numpy as np
import pytest

from edge_agent.drift.calibration import calibrate_loss_rise
from edge_agent.drift.loss_rise import LossRiseParams
from edge_agent.drift.rises import LOSS_CAP, clip_losses, resampled_rises
from edge_agent.errors import DataError
from edge_agent.wire.manifest import MonitorSpec
from tests.drift.streams import CLASSES, clean_losses


def _calibrated(n: int = 400, batch_size: int = 32) -> MonitorSpec:
    return calibrate_loss_rise(
        clean_losses(n, np.random.default_rng(1)),
        batch_size=batch_size,
        classes=CLASSES,
        rng=np.random.default_rng(2),
    )


def test_resampled_rises_of_lookback_one_equal_the_normal_quantile() -> None:
    """Means of 50 normal losses: rises are normal with sd sqrt(2/50). Seed 3; 200,000 draws give
    the 1e-3 quantile to about 2.5 % (one sigma), 10 % are allowed."""
    losses = np.random.default_rng(3).normal(0.0, 1.0, 20_000)
    rises = resampled_rises(losses, batch_size=50, lookback=1, draws=200_000, rng=np.random.default_rng(4))
    assert len(rises) == 200_000
    assert np.quantile(rises, 0.999) == pytest.approx(3.0902 * math.sqrt(2 / 50), rel=0.1)


def test_rises_look_back_to_the_lowest_batch() -> None:
    losses = np.arange(10.0)
    one = resampled_rises(losses, batch_size=1, lookback=1, draws=500, rng=np.random.default_rng(5))
    two = resampled_rises(losses, batch_size=1, lookback=2, draws=499, rng=np.random.default_rng(5))
    assert (two >= one[1:]).all()
    assert (two > one[1:]).any()


def test_clip_bounds_and_replaces_what_is_not_finite() -> None:
    losses = np.array([0.5, 3.0, np.nan, np.inf, -np.inf])
    assert clip_losses(losses, 2.0).tolist() == [0.5, 2.0, 2.0, 2.0, 2.0]
    assert clip_losses(losses, None).tolist() == [0.5, 3.0, LOSS_CAP, LOSS_CAP, LOSS_CAP]


def test_the_entry_survives_the_manifest_and_gives_the_params_back() -> None:
    spec = _calibrated()
    params = LossRiseParams.from_spec(MonitorSpec.model_validate_json(spec.model_dump_json(by_alias=True)))
    assert params == LossRiseParams.from_spec(spec)
    assert params.clip == math.log(CLASSES)
    assert (params.batch_size, params.patience, params.safety, params.quantile) == (32, 1, 2.0, 1e-3)
    assert spec.false_alarm_rate == 1e-3


def test_same_seed_same_gamma() -> None:
    assert _calibrated() == _calibrated()


def test_larger_batches_give_a_smaller_gamma() -> None:
    gammas = [LossRiseParams.from_spec(_calibrated(batch_size=size)).gamma for size in (8, 32, 128)]
    assert gammas == sorted(gammas, reverse=True)


def test_a_perfect_net_keeps_the_published_gamma() -> None:
    spec = calibrate_loss_rise(np.full(400, 1e-6), batch_size=32, classes=3, rng=np.random.default_rng(0))
    assert LossRiseParams.from_spec(spec).gamma == 0.1


def test_infinite_losses_of_a_classification_count_as_the_clip() -> None:
    losses = clean_losses(400, np.random.default_rng(1))
    losses[:3] = np.inf
    spec = calibrate_loss_rise(losses, batch_size=32, classes=CLASSES, rng=np.random.default_rng(0))
    assert math.isfinite(LossRiseParams.from_spec(spec).gamma)


def test_a_regression_is_clipped_at_its_own_high_quantile() -> None:
    losses = np.square(np.random.default_rng(0).normal(0.0, 2.0, 1000))
    params = LossRiseParams.from_spec(
        calibrate_loss_rise(losses, batch_size=32, classes=None, rng=np.random.default_rng(0))
    )
    assert params.clip == pytest.approx(float(np.quantile(losses, 0.99)))


@pytest.mark.parametrize(
    ("losses", "classes", "problem"),
    [
        (np.ones(63), 3, "63"),
        (np.ones((64, 2)), 3, "64, 2"),
        (np.zeros(100), None, "zero"),
        (np.full(100, np.nan), None, "not finite"),
    ],
)
def test_losses_that_cannot_calibrate_are_refused_by_name(
    losses: np.ndarray[tuple[int, ...], np.dtype[np.float64]], classes: int | None, problem: str
) -> None:
    with pytest.raises(DataError, match=problem):
        calibrate_loss_rise(losses, batch_size=32, classes=classes, rng=np.random.default_rng(0))
