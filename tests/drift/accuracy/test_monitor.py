"""Estimates are right where they may be made, and refused where their assumptions fail."""

from dataclasses import replace

import numpy as np
import pytest

from edge_agent.drift.accuracy.monitor import AccuracyParams, AccuracyState, latest, rebaseline, step, step_many
from edge_agent.drift.finding import Finding
from edge_agent.drift.observed import Observed
from edge_agent.errors import DataError
from tests.drift.accuracy.made import BATCH, FEATURES, Rows, calibrated, covered_or_refused, draw, model, shown, window

PARAMS = calibrated(draw(1200, np.random.default_rng(1)))
POOL = draw(6000, np.random.default_rng(2))


def _tilted(strength: float, rng: np.random.Generator) -> Rows:
    """500 of the pool, drawn with importances along a random direction."""
    along = POOL.features @ rng.normal(size=FEATURES)
    along = np.clip((along - along.mean()) / along.std(), -3, 3)
    importance = np.exp(strength * along)
    return POOL.take(rng.choice(6000, 500, p=importance / importance.sum()))


def test_an_unchanged_stream_is_estimated_and_not_refused() -> None:
    # seed 3, 60 windows of one pool; at its level of 90 % an interval covers fewer than 51 of 60 with chance 0.08
    rng = np.random.default_rng(3)
    rows = [POOL.take(rng.choice(6000, 500)) for _ in range(60)]
    found = [window(PARAMS, one) for one in rows]
    assert not any(estimate.refused for estimate in found)
    errors = [abs(estimate.value - one.accuracy) for estimate, one in zip(found, rows, strict=True)]
    assert np.mean(errors) < 0.03
    assert np.mean(np.array(errors) <= 0.05) >= 0.9
    assert np.mean([covered_or_refused(e, one) for e, one in zip(found, rows, strict=True)]) >= 0.85


@pytest.mark.parametrize("strength", [0.5, 1.0])
def test_a_covariate_shift_is_followed(strength: float) -> None:
    # seed 4, 60 windows, each tilted in another direction
    rng = np.random.default_rng(4)
    rows = [_tilted(strength, rng) for _ in range(60)]
    pairs = [(e, one.accuracy) for e, one in ((window(PARAMS, one), one) for one in rows) if not e.refused]
    assert len(pairs) >= 40
    errors = np.array([abs(estimate.value - truth) for estimate, truth in pairs])
    assert errors.mean() < 0.03
    assert (errors <= 0.05).mean() >= 0.9
    assert np.mean([estimate.low <= truth <= estimate.high for estimate, truth in pairs]) >= 0.85
    naive = np.mean([abs(PARAMS.expected - truth) for _, truth in pairs])
    assert errors.mean() < naive or naive < 0.02


def test_rotations_swaps_scales_and_broken_sensors_are_covered_or_refused() -> None:
    rng = np.random.default_rng(5)
    rows = POOL.take(rng.choice(6000, 500))
    turn, _ = np.linalg.qr(rng.normal(size=(FEATURES, FEATURES)))
    swapped = rows.features.copy()
    swapped[:, [0, 1]] = swapped[:, [1, 0]]
    others = [rows.features @ turn, swapped, rows.features[:, ::-1], rows.features * 0.1, -rows.features]
    for sensor in range(FEATURES):
        stuck = rows.features.copy()
        stuck[:, sensor] = stuck[sensor, sensor]
        others.append(stuck)
    others += [rows.features * scale for scale in (0.5, 1.05, 1.2, 1.5, 3.0, 1e6)]
    others += [rows.features + offset for offset in (0.1, 1.0, 100.0)]
    others += [rows.features + rng.normal(scale=scale, size=(500, FEATURES)) for scale in (0.1, 0.3, 1.0)]
    for features in others:
        through = rows.seen(features)
        assert covered_or_refused(window(PARAMS, through), through)


def test_a_class_that_the_reference_has_not_is_refused() -> None:
    known = draw(1200, np.random.default_rng(6), shares=(0.4, 0.3, 0.3, 0.0))
    params = calibrated(known)
    for share in (0.2, 0.5, 1.0):
        rest = (1 - share) / 3
        rows = draw(500, np.random.default_rng(7), shares=(rest, rest, rest, share))
        assert window(params, rows).refused
    assert not window(params, draw(500, np.random.default_rng(8), shares=(0.4, 0.3, 0.3, 0.0))).refused


def test_a_strong_change_of_the_class_mix_is_refused_or_covered() -> None:
    for number, shares in enumerate([(1.0, 0, 0, 0), (0, 0.5, 0.5, 0), (0.7, 0.1, 0.1, 0.1), (0, 0, 0, 1.0)]):
        rows = draw(500, np.random.default_rng(20 + number), shares=shares)
        assert covered_or_refused(window(PARAMS, rows), rows)


def test_after_a_refusal_the_figure_comes_back_with_the_reference() -> None:
    rng = np.random.default_rng(9)
    same = [POOL.take(rng.choice(6000, 500)) for _ in range(3)]
    state, found = shown(PARAMS, AccuracyState.start(PARAMS), same[0].seen(same[0].features * 1e3))
    assert found is not None
    assert found.refusal == "support"
    state, found = shown(PARAMS, state, same[1])
    assert found is not None
    assert found.refusal == "held"
    assert "earlier window" in found.reason
    state, found = shown(PARAMS, state, same[2])
    assert found is not None
    assert not found.refused
    assert found.windows == 3


def test_a_window_within_which_something_changes_is_refused_and_the_next_is_judged_by_itself() -> None:
    rng = np.random.default_rng(21)
    along = POOL.features[:, 2] / POOL.features[:, 2].std()
    tilted = np.exp(0.7 * np.clip(along, -3, 3))
    quiet, moved = rng.choice(6000, 250), rng.choice(6000, 750, p=tilted / tilted.sum())
    state, found = shown(PARAMS, AccuracyState.start(PARAMS), POOL.take(np.concatenate([quiet, moved[:250]])))
    assert found is not None
    assert found.refusal == "passing"
    assert "within the window" in found.reason
    assert np.isnan([found.value, found.low, found.high]).all()
    _, after = shown(PARAMS, state, POOL.take(moved[250:]))
    assert after is not None
    assert not after.refused
    assert after.low <= POOL.take(moved[250:]).accuracy <= after.high


def test_broken_rows_are_left_out_and_too_many_refused() -> None:
    rows = POOL.take(np.arange(500))
    few, many = rows.features.copy(), rows.features.copy()
    few[::25, 0], many[::5, 0] = np.nan, np.inf
    found = window(PARAMS, Rows(few, rows.labels, rows.logits))
    assert (found.refusal, found.rows) == ("", 480)
    assert window(PARAMS, Rows(many, rows.labels, rows.logits)).refusal == "not-finite"
    assert window(PARAMS, Rows(rows.features, rows.labels, np.full((500, 4), np.nan))).refusal == "not-finite"


def test_readings_that_are_known_to_be_broken_are_left_out() -> None:
    state, rows = AccuracyState.start(PARAMS), POOL.take(np.arange(BATCH))
    faulty = np.zeros((BATCH, FEATURES), np.bool_)
    faulty[:10, 3] = True
    seen = rows.observed
    state, _ = step(PARAMS, state, Observed(seen.ids, seen.times_s, seen.features, seen.outputs, faulty=faulty))
    assert (state.count("rows"), state.count("seen")) == (40, BATCH)


def test_other_weights_are_refused() -> None:
    state = rebaseline(PARAMS, AccuracyState.start(PARAMS))
    _, found = shown(PARAMS, state, POOL.take(np.arange(500)))
    assert found is not None
    assert found.refusal == "other-weights"


def test_state_is_bit_equal_after_a_restart_in_the_middle_of_a_window() -> None:
    rows = POOL.take(np.arange(800))
    whole, said = shown(PARAMS, AccuracyState.start(PARAMS), rows)
    state, _ = shown(PARAMS, AccuracyState.start(PARAMS), rows.take(np.arange(250)))
    params = AccuracyParams.from_spec(PARAMS.to_spec(), PARAMS.to_arrays())
    state = AccuracyState.from_arrays(params, state.to_arrays())
    state, again = shown(params, state, rows.take(np.arange(250, 800)))
    for name, array in whole.to_arrays().items():
        assert array.tobytes() == state.to_arrays()[name].tobytes()
    assert said == again
    assert sum(array.nbytes for array in state.to_arrays().values()) < 2000


def test_a_finding_tells_the_fall_and_alarms_only_if_asked() -> None:
    rng = np.random.default_rng(10)
    hard = POOL.take(np.flatnonzero(np.sort(POOL.logits, axis=1)[:, -1] - np.sort(POOL.logits, axis=1)[:, -2] < 3))
    rows = hard.take(rng.choice(len(hard.labels), 500))
    # the class mix of doubtful rows is as before: an unusual, yet pure covariate shift
    for params in (PARAMS, replace(PARAMS, tolerated_fall=0.01)):
        state = AccuracyState.start(params)
        for start in range(0, 500, BATCH):
            state, finding = step(params, state, rows.take(np.arange(start, start + BATCH)).observed)
        found = latest(params, state)
        assert found is not None
        if not found.refused:
            assert finding.statistic == pytest.approx(params.expected - found.high)
            assert finding.attributions[0].name == "accuracy"
        assert finding.alarm == (finding.statistic > params.tolerated_fall)
        assert finding.warning == (finding.statistic > min(0.05, params.tolerated_fall))


def test_batches_of_other_sizes_and_widths_are_refused() -> None:
    state, rows = AccuracyState.start(PARAMS), POOL.take(np.arange(BATCH))
    with pytest.raises(DataError, match="batch of 50"):
        step(PARAMS, state, POOL.take(np.arange(3)).observed)
    seen = rows.observed
    with pytest.raises(DataError, match="rows of 7"):
        step(PARAMS, state, Observed(seen.ids, seen.times_s, seen.features[:, :7], seen.outputs))
    with pytest.raises(DataError, match="3 classes"):
        step(PARAMS, state, Observed(seen.ids, seen.times_s, seen.features, seen.outputs[:, :3]))
    with pytest.raises(DataError, match="totals"):
        AccuracyState.from_arrays(PARAMS, {})
    assert latest(PARAMS, state) is None


def test_a_concept_shift_inside_the_support_is_not_seen() -> None:
    # stated in docs/drift.md: what inputs mean has changed, the inputs have not; no label-free figure can know
    rows = POOL.take(np.arange(500))
    turned = Rows(rows.features, (rows.labels + 1) % 4, model(rows.features))
    found = window(PARAMS, turned)
    assert not found.refused
    assert turned.accuracy < found.low


def test_several_batches_at_once_are_bit_for_bit_what_they_are_one_by_one() -> None:
    rng = np.random.default_rng(11)
    seen = POOL.take(rng.choice(6000, 60 * BATCH)).observed
    seen.features[20 * BATCH + 3, 1] = np.nan
    seen.features[40 * BATCH : 41 * BATCH] = np.inf
    one, found, states = AccuracyState.start(PARAMS), [], {}
    for place in range(60):
        one, finding = step(PARAMS, one, seen.part(place * BATCH, (place + 1) * BATCH))
        found.append(finding)
        states[place + 1] = one
    for several in (2, 7, 60):
        other, again = AccuracyState.start(PARAMS), list[Finding]()
        while len(again) < 60:
            first = len(again) * BATCH
            other, some = step_many(PARAMS, other, seen.part(first, first + several * BATCH))
            again += some
            for name, array in states[len(again)].to_arrays().items():
                assert array.tobytes() == other.to_arrays()[name].tobytes(), name
        assert found == again


def test_sums_are_those_of_the_functions() -> None:
    rows = POOL.take(np.arange(3 * BATCH)).observed
    seen, _ = PARAMS.map.signals(rows)
    squares = np.concatenate([np.square(seen.signals), seen.own], axis=1)
    table = np.concatenate([PARAMS.functions(seen), squares], axis=1)
    sums = PARAMS.sums(seen, BATCH)
    np.testing.assert_allclose(sums, table.reshape(3, BATCH, -1).sum(axis=1), rtol=1e-12, atol=1e-10)


def test_parts_of_batches_are_refused() -> None:
    with pytest.raises(DataError, match="a batch has 50"):
        step_many(PARAMS, AccuracyState.start(PARAMS), POOL.take(np.arange(BATCH + 1)).observed)
