"""What the build makes of a reference, and what it refuses to make."""

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_agent.drift.accuracy.calibrate import REFERENCE_ROWS_CAP, calibrate_accuracy, step_rows
from edge_agent.drift.accuracy.estimated import AccuracyEstimate
from edge_agent.drift.accuracy.monitor import AccuracyParams, AccuracyState, latest, step
from edge_agent.drift.arrays import decode_drift_arrays, encode_drift_arrays
from edge_agent.drift.observed import Observed
from edge_agent.drift.reference import Reference
from edge_agent.errors import DataError
from edge_agent.wire.manifest import MonitorSpec
from tests.drift.accuracy.made import calibrated, draw

Floats = NDArray[np.float64]


def test_fewer_rows_than_500_are_refused_with_a_hint() -> None:
    rows = draw(499, np.random.default_rng(0))
    with pytest.raises(DataError, match="499 usable calibration rows") as refused:
        calibrated(rows)
    assert "500" in str(refused.value.hint)


def test_rows_that_are_not_finite_do_not_count() -> None:
    rows = draw(520, np.random.default_rng(0))
    rows.features[:40, 0] = np.nan
    with pytest.raises(DataError, match="480 usable"):
        calibrated(rows)


def test_a_long_reference_is_thinned() -> None:
    assert len(calibrated(draw(REFERENCE_ROWS_CAP + 1000, np.random.default_rng(1))).rows) == REFERENCE_ROWS_CAP


def test_parameters_survive_the_bundle() -> None:
    params = calibrated(draw(600, np.random.default_rng(2)))
    spec = MonitorSpec.model_validate_json(params.to_spec().model_dump_json(by_alias=True))
    arrays = decode_drift_arrays(encode_drift_arrays({"accuracy": params.to_arrays()}))["accuracy"]
    back = AccuracyParams.from_spec(spec, arrays)
    for name, array in params.to_arrays().items():
        assert back.to_arrays()[name].tobytes() == array.tobytes()
    assert back.to_spec() == params.to_spec()
    with pytest.raises(DataError, match="residuals"):
        AccuracyParams.from_spec(spec, {name: array for name, array in arrays.items() if name != "residuals"})
    with pytest.raises(DataError, match="'levels' does not fit"):
        AccuracyParams.from_spec(spec, {**arrays, "levels": np.zeros(9)})


def test_what_is_expected_is_the_reference_s_accuracy() -> None:
    rows = draw(800, np.random.default_rng(3))
    assert calibrated(rows).expected == pytest.approx(rows.accuracy)


def _regression(rows: int, rng: np.random.Generator, *, shift: float = 0.0) -> tuple[Floats, Floats, Floats]:
    """Readings, values and targets; noise grows with the first reading."""
    readings = rng.normal(size=(rows, 5))
    readings[:, 0] += shift
    value = readings @ np.array([1.0, 0.5, 0.0, -0.5, 1.0])
    return readings, value[:, None], value + rng.normal(size=rows) * np.exp(0.4 * readings[:, 0])


def _seen(readings: Floats, values: Floats) -> Observed:
    return Observed([str(row) for row in range(len(values))], np.zeros(len(values)), readings, values)


def _loss(params: AccuracyParams, rng: np.random.Generator, shift: float) -> tuple[AccuracyEstimate | None, float]:
    readings, values, targets = _regression(500, rng, shift=shift)
    state = AccuracyState.start(params)
    for start in range(0, 500, 50):
        state, _ = step(params, state, _seen(readings[start : start + 50], values[start : start + 50]))
    return latest(params, state), float(np.minimum(np.abs(values[:, 0] - targets), params.clip).mean())


def test_a_regression_has_its_loss_estimated() -> None:
    # seed 4: 20 windows as the reference, 20 with the noisy region twice as common; an interval of 90 %
    rng = np.random.default_rng(4)
    readings, values, targets = _regression(1500, rng)
    losses = np.abs(values[:, 0] - targets)
    zeros, names = np.zeros(1500, np.int64), ("a", "b", "c", "d", "e")
    reference = Reference(_seen(readings, values), losses, targets, None, zeros, names, ("",) * 5)
    params = calibrate_accuracy(reference, batch_size=50, rng=rng)
    assert params.quantity == "loss"
    assert AccuracyParams.from_spec(params.to_spec(), params.to_arrays()).to_spec() == params.to_spec()
    for shift in (0.0, 0.7):
        pairs = [_loss(params, rng, shift) for _ in range(20)]
        known = [(found, truth) for found, truth in pairs if found is not None and not found.refused]
        assert len(known) >= 15
        assert np.mean([found.low <= truth <= found.high for found, truth in known]) >= 0.8
        assert abs(np.mean([found.value - truth for found, truth in known])) < 0.08


def test_a_step_takes_whole_batches_of_a_window_and_few_numbers() -> None:
    assert step_rows(32, 54) == 128
    assert step_rows(20, 54) == 20, "25 batches a window: no 2, 3 or 4 of them fit"
    assert step_rows(100, 5) == 100, "five batches a window"
    assert step_rows(50, 5) == 100, "ten batches a window"
    assert step_rows(32, 700) == 64
    assert step_rows(32, 100_000) == 32
    assert step_rows(600, 5) == 600, "a window is one batch"


def _classified(features: Floats, logits: Floats, labels: NDArray[np.int64], embeddings: Floats | None) -> Reference:
    rows, width = len(labels), features.shape[1]
    seen = Observed([str(row) for row in range(rows)], np.zeros(rows), features, logits, embeddings)
    zeros, names = np.zeros(rows, np.int64), tuple(f"f{number}" for number in range(width))
    return Reference(seen, np.zeros(rows), labels, 2, zeros, names, ("",) * width)


@pytest.mark.parametrize(
    ("features", "embeddings"),
    [
        (np.ones((600, 3)), None),
        (np.tile(np.arange(600.0)[:, None], (1, 5_000)), None),
        (np.random.default_rng(0).normal(size=(600, 4)), np.random.default_rng(1).normal(size=(600, 7))),
        (np.random.default_rng(0).normal(size=(600, 4)), np.zeros((600, 5_000))),
        (np.random.default_rng(0).integers(0, 255, (600, 1)).astype(np.float64), None),
    ],
)
def test_odd_inputs_have_an_estimate(features: Floats, embeddings: Floats | None) -> None:
    # constant, more columns than are looked at, with embeddings, embeddings that say nothing, one column; one logit
    rng = np.random.default_rng(5)
    labels = (rng.random(600) < 0.7).astype(np.int64)
    logits = np.full((600, 1), 0.8)
    reference = _classified(features, logits, labels, embeddings)
    params = calibrate_accuracy(reference, batch_size=100, rng=rng)
    state = AccuracyState.start(params)
    for start in range(0, 500, 100):
        rows = slice(start, start + 100)
        part = None if embeddings is None else embeddings[rows]
        ids, times = [str(row) for row in range(100)], np.zeros(100)
        state, _ = step(params, state, Observed(ids, times, features[rows], logits[rows], part))
    found = latest(params, state)
    assert found is not None
    assert found.refused or found.low <= labels[:500].mean() <= found.high
