import math
from collections.abc import Callable

import numpy as np
import pytest

from edge_agent.drift.arrays import decode_drift_arrays, encode_drift_arrays
from edge_agent.drift.observed import Observed
from edge_agent.drift.unlabelled import NAME, LabelFreeParams, LabelFreeState, calibrate, step
from edge_agent.drift.unlabelled.calibrate import Refits, calibrated
from edge_agent.drift.unlabelled.fitting import fitted
from edge_agent.drift.unlabelled.paths import STREAMS_AT_ONCE, batch_means, stream_maxima
from edge_agent.errors import DataError
from edge_agent.wire.manifest import MonitorSpec
from tests.benchmarks.cohorts_data.gas import read_batch
from tests.drift.unlabelled.made import BATCH, observed, params, reference, rows
from tests.shared_data import DATA


def test_the_bundle_holds_all_of_it() -> None:
    rng = np.random.default_rng(0)
    spec, arrays = calibrate(reference(observed(rows(800, 5, rng))), batch_size=BATCH, rate=0.1, rng=rng)
    read = MonitorSpec.model_validate_json(spec.model_dump_json())
    back = LabelFreeParams.from_spec(read, decode_drift_arrays(encode_drift_arrays({NAME: arrays}))[NAME])
    direct = LabelFreeParams.from_spec(spec, arrays)

    findings = []
    for monitor in (direct, back):
        state, batch = LabelFreeState.start(monitor), observed(rows(BATCH, 5, np.random.default_rng(1)))
        findings.append(step(monitor, state, batch)[1])

    assert findings[0] == findings[1]
    assert back.threshold >= back.warning_threshold > 0
    assert back.false_alarm_rate == 0.1
    assert spec.promise is not None
    assert "800 rows" in spec.evidence


@pytest.mark.parametrize("lost", ["names", "knots", "level", "scale"])
def test_a_damaged_bundle_is_refused(lost: str) -> None:
    spec, arrays = params().to_spec(evidence="", promise=None)

    with pytest.raises(DataError, match="label-free"):
        LabelFreeParams.from_spec(spec, {name: array for name, array in arrays.items() if name != lost})
    if lost != "names":
        broken = {**arrays, lost: np.full_like(arrays[lost], np.nan)}
        with pytest.raises(DataError, match="not finite"):
            LabelFreeParams.from_spec(spec, broken)


def test_a_reference_of_a_few_rows_is_refused_with_the_number_needed() -> None:
    rng = np.random.default_rng(0)

    with pytest.raises(DataError, match="40 reference rows cannot calibrate batches of 32"):
        calibrate(reference(observed(rows(40, 3, rng))), batch_size=BATCH, rate=0.1, rng=rng)
    with pytest.raises(DataError, match="do not support"):
        calibrate(reference(observed(rows(400, 3, rng))), batch_size=BATCH, rate=1e-3, rng=rng)


@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_unseen_streams_keep_the_promised_rate(correlation: float) -> None:
    # Seeds 0 and 1, rate 0.05, 60 unseen streams of 20 batches: at the promised rate a ratio has a deviation of 0.17,
    # and streams that begin anew alarm less. 1.5 is exceeded by chance in 1 of 600; a threshold 40 % too low is seen.
    ratios = [_measured(_made(correlation), 4000 if correlation else 2000, 0.05, seed) for seed in range(2)]

    assert max(ratios) <= 1.5


@pytest.mark.long
@pytest.mark.parametrize("correlation", [0.0, 0.6])
def test_most_calibrations_keep_the_promised_rate(correlation: float) -> None:
    # Seeds 2 to 9; as above. 9 of 10 are promised to keep it.
    ratios = [_measured(_made(correlation), 4000 if correlation else 2000, 0.05, seed) for seed in range(2, 10)]

    assert np.median(ratios) <= 1.0
    assert np.mean([ratio <= 1.5 for ratio in ratios]) >= 7 / 8


def test_a_short_reference_promises_without_going_deaf() -> None:
    # Seed 3; 500 rows, the lowest rate that they support. A threshold of 35, as once, is reached by no drift for hours.
    rng = np.random.default_rng(3)
    fresh = _made(0.0)
    monitor, promise = calibrated(reference(fresh(500, rng)), batch_size=BATCH, rate=0.032, rng=rng)
    moved = fresh(20 * BATCH, rng)
    moved.features[:, 0] += moved.features[:, 0].std()

    scores = monitor.scoring(moved).scores
    found = stream_maxima(monitor, batch_means(scores, np.arange(len(scores)).reshape(1, 20, BATCH)))[0]

    assert promise.point_threshold < monitor.threshold < 3 * promise.point_threshold
    assert found[9] > monitor.threshold


def test_a_threshold_that_is_too_low_would_be_noticed() -> None:
    ratio = _measured(_made(0.0), 2000, 0.05, 0, factor=0.6)

    assert ratio > 1.5


@pytest.mark.data
def test_gas_batch_1_resampled_keeps_the_promised_rate() -> None:
    # seed 0, rate 0.1, batches of 16; 445 rows, drawn anew with replacement: about 120 alarms if the rate were exact
    samples = read_batch(DATA, 1)
    features = samples.features[:, ::8].astype(np.float64)

    def made(count: int, rng: np.random.Generator) -> Observed:
        return observed(features[rng.integers(0, len(features), count)], embeddings=False)

    ratio = _measured(made, 445, 0.1, 0, batch=16)

    assert ratio <= 1.5


def _measured(
    made: Callable[[int, np.random.Generator], Observed],
    count: int,
    rate: float,
    seed: int,
    *,
    factor: float = 1.0,
    batch: int = BATCH,
) -> float:
    """Measured over promised rate of crossings, 60 streams of 20 batches."""
    rng = np.random.default_rng(seed)
    monitor, _ = calibrated(reference(made(count, rng)), batch_size=batch, rate=rate, rng=rng)
    streams, length = 60, 20
    scores = monitor.scoring(made(streams * length * batch, rng)).scores
    index = np.arange(len(scores)).reshape(streams, length, batch)
    found = stream_maxima(monitor, batch_means(scores, index))
    survived = float((found.max(axis=1) <= factor * monitor.threshold).mean())
    return -math.log(max(survived, 1e-9)) / length / rate


def _made(correlation: float) -> Callable[[int, np.random.Generator], Observed]:
    return lambda count, rng: observed(rows(count, 4, rng, correlation=correlation), embeddings=False)


def test_streams_are_judged_alike_whether_their_means_are_kept_or_not() -> None:
    rng = np.random.default_rng(2)
    monitors = Refits(fitted(reference(observed(rows(400, 3, rng))), batch_size=BATCH, rate=0.1, rng=rng))
    paths, index = monitors(np.arange(400)), rng.integers(0, 400, (STREAMS_AT_ONCE + 3, 5, BATCH))

    first, second, third = (paths(index) for _ in range(3))

    assert first.shape == (STREAMS_AT_ONCE + 3, 5)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, third)


def test_means_of_wide_scores_are_gathered_in_parts() -> None:
    rng = np.random.default_rng(3)
    scores, index = rng.normal(size=(50, 5000)).astype(np.float32), rng.integers(0, 50, (3, 4, BATCH))

    found = batch_means(scores, index)

    np.testing.assert_allclose(found, scores.astype(np.float64)[index].mean(axis=2), atol=1e-6)
