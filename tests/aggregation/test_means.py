import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server_bridge.aggregation.means import weighted_mean

weights_of = st.lists(st.floats(0.1, 1e4), min_size=1, max_size=6)


def test_by_hand() -> None:
    models = [{"w": np.array([1.0, 2.0], np.float32)}, {"w": np.array([4.0, 8.0], np.float32)}]
    mean = weighted_mean(models, [1, 2])
    assert mean["w"].tolist() == [3.0, 6.0]
    assert mean["w"].dtype == np.float32


@given(weights_of, st.integers(0, 1_000))
def test_it_is_numpys_average(weights: list[float], seed: int) -> None:
    tensors = np.random.default_rng(seed).normal(size=(len(weights), 3, 2))
    mean = weighted_mean([{"w": tensor} for tensor in tensors], weights)["w"]
    np.testing.assert_allclose(mean, np.average(tensors, axis=0, weights=weights), atol=1e-12)


@given(weights_of, st.floats(1e-3, 1e3), st.integers(0, 100))
def test_neither_order_nor_a_common_factor_matters(weights: list[float], factor: float, seed: int) -> None:
    models = [{"w": tensor} for tensor in np.random.default_rng(seed).normal(size=(len(weights), 4))]
    plain = weighted_mean(models, weights)["w"]
    np.testing.assert_allclose(weighted_mean(models[::-1], weights[::-1])["w"], plain, atol=1e-12)
    np.testing.assert_allclose(weighted_mean(models, [factor * w for w in weights])["w"], plain, atol=1e-12)


@given(weights_of)
def test_models_that_agree_are_their_mean_bit_for_bit(weights: list[float]) -> None:
    model = {"w": np.random.default_rng(0).normal(size=50).astype(np.float32)}
    assert (weighted_mean([model] * len(weights), weights)["w"] == model["w"]).all()


def test_integers_are_rounded_back() -> None:
    mean = weighted_mean([{"n": np.array(3)}, {"n": np.array(4)}], [1, 3])
    assert mean["n"].dtype == np.array(3).dtype
    assert mean["n"] == 4


def test_a_zero_weight_counts_for_nothing() -> None:
    assert weighted_mean([{"w": np.array([1.0])}, {"w": np.array([9.0])}], [0, 2])["w"].tolist() == [9.0]


@pytest.mark.parametrize("weights", [[0.0, 0.0], [-1.0, 2.0], [np.nan, 1.0], [np.inf, 1.0], [1.0]])
def test_unusable_weights_are_refused(weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weights"):
        weighted_mean([{"w": np.zeros(1)}] * 2, weights)


def test_models_that_differ_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'b'"):
        weighted_mean([{"w": np.zeros(1)}, {"w": np.zeros(1), "b": np.zeros(1)}], [1, 1])
    with pytest.raises(ValueError, match="'w'"):
        weighted_mean([{"w": np.zeros(1)}, {"w": np.zeros(2)}], [1, 1])
