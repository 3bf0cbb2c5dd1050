from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_agent.drift.observed import Observed
from edge_agent.drift.unlabelled import LabelFreeState, rebaseline, step
from edge_agent.drift.unlabelled.fitting import fitted
from edge_agent.drift.unlabelled.monitor import OWN_FACTOR
from edge_agent.drift.unlabelled.paths import batch_means, stream_maxima
from edge_agent.errors import DataError
from tests.drift.unlabelled.made import BATCH, mixed, observed, params, reference, rows, run


def test_a_batch_is_judged_as_calibration_judges_it() -> None:
    monitor, rng = params(), np.random.default_rng(0)
    seen = observed(rows(60 * BATCH, 6, rng))

    _, found = run(monitor, LabelFreeState.start(monitor), seen)

    index = np.arange(60 * BATCH).reshape(1, 60, BATCH)
    means = batch_means(monitor.scoring(seen).scores, index)
    np.testing.assert_allclose(found, stream_maxima(monitor, means)[0], rtol=2e-3, atol=2e-3)


def test_a_quiet_stream_stays_far_below_and_a_step_is_seen_in_a_batch() -> None:
    # seed 1; a threshold of 20 is crossed by chance about once in 1e6 batches
    monitor, rng = params(), np.random.default_rng(1)
    state, found = run(monitor, LabelFreeState.start(monitor), observed(rows(200 * BATCH, 6, rng)))
    assert max(found) < 20

    drifted = rows(BATCH, 6, rng)
    drifted[:, 2] += 2.0 * drifted[:, 2].std()
    _, finding = step(monitor, state, observed(drifted))

    assert finding.alarm
    assert (finding.attributions[0].name, finding.attributions[0].unit) == ("x2", "bar")
    assert finding.shift == "covariate"
    assert finding.began_samples == BATCH


def test_levels_are_told_in_the_features_own_unit() -> None:
    monitor, rng = params(), np.random.default_rng(2)
    state, _ = run(monitor, LabelFreeState.start(monitor), observed(rows(20 * BATCH, 6, rng)))
    drifted = rows(20 * BATCH, 6, rng)
    deviation = float(np.linalg.norm(mixed(6)[:, 4]))
    drifted[:, 4] += 3.0 * deviation

    for start in range(0, 20 * BATCH, BATCH):
        state, finding = step(monitor, state, observed(drifted).part(start, start + BATCH))

    first = finding.attributions[0]
    assert (first.name, first.measure) == ("x4", "level")
    assert first.before == pytest.approx(0.0, abs=0.2 * deviation)
    assert first.now == pytest.approx(3.0 * deviation, abs=0.2 * deviation)
    assert finding.began_samples == pytest.approx(20 * BATCH, abs=8 * BATCH)


def test_noise_is_told_as_a_spread() -> None:
    monitor, rng = params(), np.random.default_rng(3)
    noisy = rows(6 * BATCH, 6, rng)
    noisy[:, 1] += rng.normal(0.0, 10.0, len(noisy))

    state, _ = run(monitor, LabelFreeState.start(monitor), observed(noisy[: 5 * BATCH]))
    _, finding = step(monitor, state, observed(noisy[5 * BATCH :]))

    first = finding.attributions[0]
    assert (first.name, first.measure) == ("x1", "spread")
    assert first.now == pytest.approx(np.hypot(10.0, first.before), rel=0.2)


@pytest.mark.parametrize(
    "turn",
    [
        pytest.param(lambda x: x[:, [1, 2, 0, 4, 5, 3]], id="channels swapped"),
        pytest.param(lambda x: x * np.array([-1, -1, 1, -1, -1, 1]), id="signs turned"),
    ],
)
def test_a_remounted_sensor_is_seen_although_each_channel_looks_as_before(turn: object) -> None:
    rng = np.random.default_rng(4)
    chained = np.linalg.cholesky(0.8 ** np.abs(np.subtract.outer(np.arange(6), np.arange(6))))
    before = rng.normal(size=(2000, 6)) @ chained.T
    fit = fitted(reference(observed(before, embeddings=False)), batch_size=BATCH, rate=0.01, rng=rng)
    monitor = replace(fit.params, threshold=20.0, warning_threshold=14.0)
    state, _ = run(monitor, LabelFreeState.start(monitor), observed(before[: 10 * BATCH], embeddings=False))

    turned = turn(rng.normal(size=(2 * BATCH, 6)) @ chained.T)  # type: ignore[operator]  # a lambda
    _, found = run(monitor, state, observed(turned, embeddings=False))

    assert max(found) > 20


def test_a_slow_ramp_is_seen_and_its_beginning_is_found_roughly() -> None:
    monitor, rng = params(), np.random.default_rng(5)
    state, _ = run(monitor, LabelFreeState.start(monitor), observed(rows(100 * BATCH, 6, rng)))
    ramp = rows(100 * BATCH, 6, rng)
    ramp[:, 0] += np.linspace(0.0, 1.0, len(ramp)) * ramp[:, 0].std()

    seen, findings = observed(ramp), []
    for start in range(0, len(ramp), BATCH):
        state, finding = step(monitor, state, seen.part(start, start + BATCH))
        findings.append(finding)

    first = next(place for place, finding in enumerate(findings) if finding.alarm)
    assert first < 40
    assert findings[first].began_samples == pytest.approx((first + 1) * BATCH, abs=16 * BATCH)
    assert findings[-1].attributions[0].name == "x0"


def test_other_class_shares_are_told_as_a_label_shift() -> None:
    rng = np.random.default_rng(6)
    centres = rng.normal(0.0, 2.0, size=(3, 5))

    def drawn(shares: list[float], count: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        classes = rng.choice(3, count, p=shares)
        return centres[classes] + rng.normal(size=(count, 5)), classes

    features, labels = drawn([0.5, 0.3, 0.2], 3000)
    seen = replace(observed(features, embeddings=False), outputs=(features @ centres.T).astype(np.float32))
    fit = fitted(replace(reference(seen), labels=labels), batch_size=BATCH, rate=0.01, rng=rng)
    monitor = replace(fit.params, threshold=20.0, warning_threshold=14.0)
    state = LabelFreeState.start(monitor)
    other, _ = drawn([0.1, 0.1, 0.8], 10 * BATCH)
    served = replace(observed(other, embeddings=False), outputs=(other @ centres.T).astype(np.float32))
    for start in range(0, len(other), BATCH):
        state, finding = step(monitor, state, served.part(start, start + BATCH))

    assert finding.alarm
    assert finding.shift == "label"
    assert finding.attributions[0].measure == "share"
    now = {one.name: one.now for one in finding.attributions}
    assert now["class 2"] == pytest.approx(0.8, abs=0.1)


def test_missing_and_broken_readings_are_no_drift() -> None:
    # seed 7; a threshold of 20 as above
    monitor, rng = params(), np.random.default_rng(7)
    clean = rows(150 * BATCH, 6, rng)
    seen = observed(clean)
    features, faulty = seen.features.copy(), np.zeros(clean.shape, np.bool_)
    features[rng.random(clean.shape) < 0.2] = np.nan
    features[:, 3] = np.inf
    faulty[:, 1] = True
    features[:, 1] = 1e9
    missing = replace(seen, features=features, faulty=faulty)

    _, found = run(monitor, LabelFreeState.start(monitor), missing)

    assert max(found) < 20


def test_a_drift_is_seen_beside_missing_readings() -> None:
    monitor, rng = params(), np.random.default_rng(8)
    drifted = rows(10 * BATCH, 6, rng)
    drifted[:, 2] += 1.5 * drifted[:, 2].std()
    seen = observed(drifted)
    features = seen.features.copy()
    features[:, 4] = np.nan
    state = LabelFreeState.start(monitor)
    for start in range(0, len(seen), BATCH):
        state, finding = step(monitor, state, replace(seen, features=features).part(start, start + BATCH))

    assert finding.alarm
    assert finding.attributions[0].name == "x2"


def test_batches_without_any_reading_say_nothing() -> None:
    monitor, rng = params(), np.random.default_rng(9)
    seen = observed(rows(20 * BATCH, 6, rng))
    assert seen.embeddings is not None
    nothing = replace(
        seen,
        features=np.full_like(seen.features, np.nan),
        outputs=np.full_like(seen.outputs, np.nan),
        embeddings=np.full_like(seen.embeddings, np.inf),
    )

    state, finding = step(monitor, LabelFreeState.start(monitor), nothing.part(0, BATCH))
    _, found = run(monitor, state, nothing)

    assert finding.rows == 0
    assert max(found) < 14


@pytest.mark.parametrize("value", [1e30, -1e30, 3e38, 1e308])
def test_huge_values_are_an_alarm_and_no_error(value: float) -> None:
    monitor, rng = params(), np.random.default_rng(10)
    seen = observed(rows(BATCH, 6, rng))
    features = seen.features.astype(np.float64)
    features[:, 0] = value

    state, finding = step(monitor, LabelFreeState.start(monitor), replace(seen, features=features))

    assert finding.alarm
    assert np.isfinite(finding.statistic)
    assert all(np.isfinite([one.before, one.now, one.weight]).all() for one in finding.attributions)
    assert all(np.isfinite(array).all() for name, array in state.to_arrays().items() if name == "means")


def test_the_state_comes_back_bit_for_bit_and_its_size_is_fixed() -> None:
    monitor, rng = params(), np.random.default_rng(11)
    seen = observed(rows(50 * BATCH, 6, rng))
    state, sizes = LabelFreeState.start(monitor), set()
    for start in range(0, len(seen), BATCH):
        arrays = state.to_arrays()
        sizes.add(sum(array.nbytes for array in arrays.values()))
        again, one = step(monitor, LabelFreeState.from_arrays(monitor, arrays), seen.part(start, start + BATCH))
        state, two = step(monitor, state, seen.part(start, start + BATCH))
        assert one == two
        for name, array in again.to_arrays().items():
            assert array.tobytes() == state.to_arrays()[name].tobytes()
    assert len(sizes) == 1


@pytest.mark.parametrize("features", [16, 128])
def test_the_state_is_below_200_kb(features: int) -> None:
    rng = np.random.default_rng(12)
    seen = observed(rng.normal(size=(700, features))) if features < 65 else _wide(rng, features)
    fit = fitted(reference(seen), batch_size=BATCH, rate=0.1, rng=rng)

    state = LabelFreeState.start(fit.params)

    assert sum(array.nbytes for array in state.to_arrays().values()) < 200_000


def test_state_of_another_bundle_is_refused() -> None:
    arrays = LabelFreeState.start(params()).to_arrays()

    with pytest.raises(DataError, match="another shape"):
        LabelFreeState.from_arrays(params(4), arrays)


def test_features_in_another_order_are_named_in_another_order() -> None:
    rng = np.random.default_rng(13)
    order = np.array([3, 0, 4, 1, 2])
    before, after = rng.normal(size=(1000, 5)), rng.normal(size=(5 * BATCH, 5))
    before[:, 1] += before[:, 0]
    after[:, 1] += after[:, 0] + 0.8
    statistics, named = [], []
    for arranged in (np.arange(5), order):
        names = tuple(f"x{place}" for place in arranged)
        seen = replace(observed(before[:, arranged], embeddings=False), outputs=np.zeros((1000, 0), np.float32))
        fit = fitted(
            replace(reference(_with_outputs(seen), names=names), observed=seen),
            batch_size=BATCH,
            rate=0.1,
            rng=np.random.default_rng(0),
        )
        monitor = replace(fit.params, threshold=0.0, warning_threshold=0.0)
        state, findings = LabelFreeState.start(monitor), []
        for start in range(0, len(after), BATCH):
            some = observed(after[start : start + BATCH, arranged], embeddings=False)
            state, finding = step(monitor, state, some)
            findings.append(finding)
        statistics.append([finding.statistic for finding in findings])
        named.append([[one.name for one in finding.attributions] for finding in findings])

    np.testing.assert_allclose(statistics[0], statistics[1], rtol=1e-2)
    assert named[0][-1][0] == named[1][-1][0] == "x1"


def test_after_an_activation_the_models_parts_learn_anew_and_the_inputs_stay() -> None:
    # seed 14; a threshold of 20 as above
    monitor, rng = params(), np.random.default_rng(14)
    state, _ = run(monitor, LabelFreeState.start(monitor), observed(rows(30 * BATCH, 6, rng)))
    other = observed(rows(120 * BATCH, 6, rng))
    assert other.embeddings is not None
    renewed = replace(other, outputs=2.0 - other.outputs, embeddings=other.embeddings * 1.5 + 1.0)
    assert max(run(monitor, state, renewed.part(0, 5 * BATCH))[1]) > 20

    state = rebaseline(monitor, state)
    state, found = run(monitor, state, renewed)

    assert max(found) < 20
    assert not state.own_inputs
    drifted = rows(3 * BATCH, 6, rng)
    drifted[:, 5] += 2 * drifted[:, 5].std()
    assert max(run(monitor, state, observed(drifted))[1]) > 20


def test_inputs_in_alarm_at_an_activation_are_the_new_level() -> None:
    # seed 15; a threshold of 20 as above
    monitor, rng = params(), np.random.default_rng(15)
    shifted = rows(200 * BATCH, 6, rng)
    shifted[:, 0] += 3.0 * shifted[:, 0].std()
    state, found = run(monitor, LabelFreeState.start(monitor), observed(shifted[: 10 * BATCH]))
    assert min(found) > 20

    state, found = run(monitor, rebaseline(monitor, state), observed(shifted[10 * BATCH :]))
    assert max(found) < OWN_FACTOR * 20
    assert state.own_inputs

    _, found = run(monitor, state, observed(rows(3 * BATCH, 6, rng)))
    assert max(found) > OWN_FACTOR * 20


def test_a_rare_value_and_a_constant_do_not_alarm_but_their_change_does() -> None:
    # seed 16; a threshold of 20 as above
    rng = np.random.default_rng(16)

    def drawn(count: int) -> NDArray[np.float64]:
        binary = (rng.random((count, 2)) < [0.5, 0.01]).astype(float)
        return np.column_stack([binary, np.full(count, 7.0), rng.normal(size=count)])

    fit = fitted(reference(observed(drawn(2000), embeddings=False)), batch_size=BATCH, rate=0.01, rng=rng)
    monitor = replace(fit.params, threshold=20.0, warning_threshold=14.0)
    state, found = run(monitor, LabelFreeState.start(monitor), observed(drawn(150 * BATCH), embeddings=False))
    assert max(found) < 20

    for place, value, name in ((1, 1.0, "x1"), (2, 7.5, "x2")):
        changed = drawn(BATCH)
        changed[:, place] = value
        _, finding = step(monitor, state, observed(changed, embeddings=False))
        assert finding.alarm
        assert finding.attributions[0].name == name


@pytest.mark.parametrize("spoilt", ["features", "outputs", "embeddings"])
@pytest.mark.parametrize("value", [1.0, np.nan])
def test_a_reference_part_that_is_constant_or_never_there_judges_nothing(spoilt: str, value: float) -> None:
    rng = np.random.default_rng(19)
    seen = observed(rows(320, 4, rng))
    array = np.full_like(getattr(seen, spoilt), value)
    spoiled = Observed(**{**{name: getattr(seen, name) for name in Observed.__slots__}, spoilt: array})
    labelled = replace(reference(seen), observed=spoiled)
    fit = fitted(labelled, batch_size=BATCH, rate=0.3, rng=rng)

    _, found = run(fit.params, LabelFreeState.start(fit.params), spoiled)

    assert max(found) < 20


@pytest.mark.parametrize("count", [0, 1, BATCH - 1, BATCH + 1])
def test_another_number_of_samples_is_refused(count: int) -> None:
    monitor = params()

    with pytest.raises(DataError, match=f"{count} samples, a batch has 32"):
        step(monitor, LabelFreeState.start(monitor), observed(np.zeros((count, 6))))


def test_samples_of_another_shape_are_refused_by_name() -> None:
    monitor, seen = params(), observed(np.zeros((BATCH, 6)))
    state = LabelFreeState.start(monitor)

    with pytest.raises(DataError, match="5 features a sample, the reference has 6"):
        step(monitor, state, replace(seen, features=seen.features[:, :5]))
    with pytest.raises(DataError, match="2 outputs a sample"):
        step(monitor, state, replace(seen, outputs=seen.outputs[:, :2]))
    with pytest.raises(DataError, match="0 embedding values a sample"):
        step(monitor, state, replace(seen, embeddings=None))


def test_a_batch_of_one_row_is_judged() -> None:
    rng = np.random.default_rng(17)
    fit = fitted(reference(observed(rows(300, 4, rng))), batch_size=1, rate=0.1, rng=rng)
    monitor = replace(fit.params, threshold=30.0, warning_threshold=25.0)

    state, found = run(monitor, LabelFreeState.start(monitor), observed(rows(100, 4, rng)), batch=1)
    _, finding = step(monitor, state, observed(np.full((1, 4), 1e4)))

    assert max(found) < 30
    assert np.isfinite(finding.statistic)


def test_a_regression_and_100000_features_are_judged() -> None:
    rng = np.random.default_rng(18)
    features = rng.normal(size=(24, 100_000)).astype(np.float32)
    seen = replace(
        observed(np.zeros((24, 4)), embeddings=False), features=features, outputs=features[:, :1].astype(np.float32)
    )
    names = tuple(f"x[{place}]" for place in range(100_000))
    fit = fitted(replace(reference(seen, names=names), classes=None), batch_size=8, rate=0.1, rng=rng)

    quiet = step(fit.params, LabelFreeState.start(fit.params), seen.part(0, 8))[1]
    moved = replace(seen.part(0, 8), features=features[:8] + 1.0)
    loud = step(fit.params, LabelFreeState.start(fit.params), moved)[1]

    assert loud.statistic > 3 * max(quiet.statistic, 1.0)


def _wide(rng: np.random.Generator, features: int) -> Observed:
    seen = observed(rng.normal(size=(700, 8)))
    return replace(seen, features=rng.normal(size=(700, features)).astype(np.float32))


def _with_outputs(seen: Observed) -> Observed:
    return replace(seen, outputs=np.zeros((len(seen), 3), np.float32))
