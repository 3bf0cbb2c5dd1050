import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from edge_agent.drift.label_shift import estimate_shares, softmax
from edge_agent.errors import DataError

UNIFORM = np.full(4, 0.25)


def _sample(shares: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Exact posteriors under equal shares of four Gaussian classes, samples drawn at other shares."""
    centres = np.eye(4) * 2
    x = centres[rng.choice(4, count, p=shares)] + rng.normal(size=(count, 4))
    return softmax(-0.5 * np.square(x[:, None] - centres).sum(-1))


def test_the_shares_are_found_where_only_they_changed() -> None:
    """Seed 3, 20,000 samples: within 0.01 of the truth; the mean probability is 0.15 off."""
    shares = np.array([0.7, 0.2, 0.1, 0.0])
    rows = _sample(shares, 20_000, np.random.default_rng(3))
    assert estimate_shares(rows, UNIFORM, strength=0) == pytest.approx(shares, abs=0.01)
    assert np.abs(rows.mean(0) - shares).max() > 0.14


def test_the_prior_of_the_model_is_taken_into_account() -> None:
    prior = np.array([0.4, 0.3, 0.2, 0.1])
    rows = _sample(UNIFORM, 20_000, np.random.default_rng(4)) * prior
    rows /= rows.sum(1, keepdims=True)
    assert estimate_shares(rows, prior) == pytest.approx(UNIFORM, abs=0.02)


def test_few_samples_stay_near_the_prior_and_none_at_it() -> None:
    one = np.array([[1.0, 0, 0, 0]])
    assert estimate_shares(one, UNIFORM)[0] == pytest.approx(3.5 / 11, abs=0.01)
    for nothing in (np.zeros((0, 4)), np.full((2, 4), math.nan)):
        assert estimate_shares(nothing, UNIFORM) == pytest.approx(UNIFORM)


@given(arrays(np.float32, st.tuples(st.integers(0, 6), st.just(3)), elements=st.floats(width=32)))
def test_any_rows_give_shares(rows: np.ndarray) -> None:
    shares = estimate_shares(softmax(rows), np.array([5.0, 0.0, 1.0]))
    assert shares.sum() == pytest.approx(1.0)
    assert (shares > 0).all()


def test_what_is_no_prior_is_refused() -> None:
    for prior in (np.zeros(3), np.array([1.0, -1, 1]), np.array([1.0, math.nan, 1])):
        with pytest.raises(DataError, match="no list of shares"):
            estimate_shares(np.zeros((1, 3)), prior)
    with pytest.raises(DataError, match="for 2 classes"):
        estimate_shares(np.zeros((1, 3)), np.ones(2))


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_one_logit_is_that_of_the_second_of_two_classes(shape: tuple[int, ...]) -> None:
    z = np.array([0.0, 2.0, np.nan])
    p = softmax(z.reshape(shape))
    np.testing.assert_allclose(p[:2], [[0.5, 0.5], [1 / (1 + np.exp(2)), 1 / (1 + np.exp(-2))]])
    assert np.isnan(p[2]).all()
