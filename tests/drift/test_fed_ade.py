"""The published signals by hand, the defined outcomes at the edges, and what no batch may break."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from edge_agent.drift.fed_ade import FedAdeParams, FedAdeState, Shift, step
from edge_agent.drift.fed_ade_scale import SignalScale
from edge_agent.errors import DataError

RAW = FedAdeParams()
SCALED = FedAdeParams(
    smoothing=0.9, uncertainty=SignalScale(7.6, 0.24), representation=SignalScale(0.43, 0.015), memory=0.3
)


def _batch(*rows: list[float]) -> NDArray[np.float64]:
    return np.array(rows)


def _judge(params: FedAdeParams, *batches: tuple[Any, Any]) -> list[Shift]:
    state, shown = FedAdeState(), []
    for probabilities, embeddings in batches:
        state, shift = step(params, state, probabilities, embeddings)
        shown.append(shift)
    return shown


def test_raw_signals_are_the_published_ones() -> None:
    first = (_batch([1.0, 0.0], [0.0, 1.0]), _batch([3.0, 0.0], [0.0, 0.1]))
    second = (_batch([1.0, 0.0]), _batch([0.0, 7.0]))
    shift = _judge(RAW, first, second)[1]
    # the means are (1, 1) / 2 in both signals, the second batch lies on an axis: the cosine is 1 / sqrt(2)
    turned = 1 - 1 / math.sqrt(2)
    assert shift.uncertainty == pytest.approx(turned)
    assert shift.representation == pytest.approx(turned / 2)
    assert shift.value == pytest.approx((turned + turned / 2) / 2)
    assert shift.rate(0.01, 0.21) == pytest.approx(0.01 + 0.2 * shift.value)


def test_the_first_batch_shows_nothing_and_an_equal_one_nothing_either() -> None:
    batch = (_batch([0.2, 0.8], [0.6, 0.4]), _batch([1.0, -2.0], [0.5, 3.0]))
    first, second = _judge(RAW, batch, batch)
    assert first == Shift(0.0, None, None, 2, 0)
    assert second.value == pytest.approx(0.0, abs=1e-12)


def test_embeddings_that_turn_round_are_the_largest_shift() -> None:
    shift = _judge(RAW, (None, _batch([1.0, 2.0])), (None, _batch([-1.0, -2.0])))[1]
    assert shift.uncertainty is None
    assert shift.representation == pytest.approx(1.0)
    assert shift.value == pytest.approx(1.0)


def test_a_row_that_is_not_finite_is_left_out_and_an_empty_batch_changes_nothing() -> None:
    good = (_batch([0.2, 0.8]), _batch([1.0, 0.0]))
    spoilt = (_batch([0.9, 0.1], [math.nan, 0.5], [0.3, 0.7]), _batch([0.0, 1.0], [1.0, 1.0], [math.inf, 0.0]))
    alone = (_batch([0.9, 0.1]), _batch([0.0, 1.0]))
    assert _judge(RAW, good, spoilt)[1].value == _judge(RAW, good, alone)[1].value
    assert (_judge(RAW, good, spoilt)[1].samples, _judge(RAW, good, spoilt)[1].left_out) == (1, 2)
    state, _ = step(SCALED, FedAdeState(), *good)
    state, shown = step(SCALED, state, *alone)
    for nothing in (np.zeros((0, 2)), np.full((3, 2), math.nan)):
        assert step(SCALED, state, nothing, nothing) == (state, Shift(shown.value, None, None, 0, len(nothing)))


def test_embeddings_without_direction_cannot_be_compared() -> None:
    zero = (_batch([0.5, 0.5]), np.zeros((1, 3)))
    first, second = _judge(RAW, zero, (_batch([0.5, 0.5]), np.ones((1, 3))))
    assert (first.value, second.representation) == (0.0, None)
    assert second.value == pytest.approx(0.0)
    # one of many rows adds no direction, and the batch is judged by the others
    mixed = np.array([[0.0, 0.0], [0.0, 5.0]])
    assert _judge(RAW, (None, _batch([1.0, 0.0])), (None, mixed))[1].representation == pytest.approx(0.5)


def test_values_near_the_end_of_float32_have_a_direction() -> None:
    huge = np.full((2, 4), 3e38, np.float32)
    assert _judge(RAW, (None, huge), (None, huge / np.float32(1e30)))[1].value == pytest.approx(0.0, abs=1e-9)


def test_a_single_class_has_no_uncertainty_to_move() -> None:
    assert _judge(RAW, (np.ones((3, 1)), None), (np.ones((1, 1)), None))[1].value == pytest.approx(0.0)


def test_what_does_not_fit_is_refused_by_shape() -> None:
    state, _ = step(RAW, FedAdeState(), np.ones((1, 3)), None)
    with pytest.raises(DataError, match="rows of 4 values after rows of 3"):
        step(RAW, state, np.ones((1, 4)), None)
    with pytest.raises(DataError, match="signals of shape"):
        step(RAW, FedAdeState(), np.ones((2, 3)), np.ones((1, 3)))
    with pytest.raises(DataError, match="signals of shape"):
        step(RAW, FedAdeState(), None, None)
    with pytest.raises(DataError, match=r"memory = 1 is outside \[0, 1\)"):
        FedAdeParams(memory=1)


def test_without_a_shift_the_scaled_value_is_small_at_every_batch_size() -> None:
    """Level, seed 5: raw, the mean over 400 batches is as expected; of it the clip leaves less."""
    rng = np.random.default_rng(5)
    alpha = np.full(10, 0.1)
    population = rng.dirichlet(alpha, 20_000)
    mean = population.mean(0)
    across = np.cov(population.T)
    along = mean @ across @ mean / (mean @ mean)
    scale = SignalScale(float((np.trace(across) - along) / (mean @ mean)), 0.29)
    for size, bound in ((4, 0.3), (32, 0.2), (256, 0.05)):
        raw, scaled = [], []
        states = [FedAdeState(), FedAdeState()]
        for _ in range(400):
            batch = rng.choice(population, size)
            states[0], shift = step(RAW, states[0], batch, None)
            raw.append(shift.value)
            states[1], shift = step(FedAdeParams(uncertainty=scale), states[1], batch, None)
            scaled.append(shift.value)
        expected = scale.expected(size, size)
        assert np.mean(raw[1:]) == pytest.approx(expected, rel=0.08)
        assert np.mean(scaled) < bound


def test_smoothing_averages_what_is_given_out_and_memory_what_is_compared_with() -> None:
    a, b = (_batch([1.0, 0.0]), None), (_batch([0.0, 1.0]), None)
    values = [shift.value for shift in _judge(FedAdeParams(smoothing=0.75), a, b, b, b)]
    assert values == pytest.approx([0, 1, 0.75, 0.5625])
    kept = _judge(FedAdeParams(memory=0.5), a, b, b)[2]
    assert kept.value == pytest.approx(1 - 1 / math.sqrt(2)), "against the mean of a and b"


finite = st.floats(-1e6, 1e6, width=32)
anything = st.floats(width=32)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.data())
def test_any_batches_give_a_shift_in_bounds_and_a_restart_changes_nothing(
    sizes: list[int], data: st.DataObject
) -> None:
    state = FedAdeState()
    for size in sizes:
        probabilities = data.draw(arrays(np.float32, (size, 3), elements=st.floats(0, 1, width=32) | st.just(math.nan)))
        embeddings = data.draw(arrays(np.float32, (size, 2), elements=anything))
        again = FedAdeState.from_json(state.to_json())
        assert again == state
        state, shift = step(SCALED, state, probabilities, embeddings)
        assert step(SCALED, again, probabilities, embeddings) == (state, shift)
        assert 0 <= shift.value <= 1
        assert 0.001 <= shift.rate(0.001, 0.1) <= 0.1 + 1e-12
        assert shift.samples + shift.left_out == size


def _stored(mean: str = "[]", size: str = "0", shift: str = "0", batches: str = "1") -> str:
    empty = '{"mean": [], "size": 0}'
    signals = f'"uncertainty": {{"mean": {mean}, "size": {size}}}, "representation": {empty}'
    return f'{{{signals}, "shift": {shift}, "batches": {batches}}}'


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", "7", _stored("[1]"), _stored("[NaN]", "1"), _stored(shift="2"), _stored(batches="-1")],
)
def test_a_damaged_state_is_refused(text: str) -> None:
    assert FedAdeState.from_json(_stored("[0.5]", "3")).uncertainty.size == 3
    with pytest.raises(DataError, match="fed-ade: the stored state"):
        FedAdeState.from_json(text)
