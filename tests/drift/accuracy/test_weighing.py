"""Weights and fits beside SciPy's, and shares of classes that are known."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

from edge_agent.drift.accuracy.class_mix import misfit, shares_that_fit
from edge_agent.drift.accuracy.weighing import balancing_weights, chance, fit_chance, fit_level, level


def test_balancing_weights_are_those_of_a_general_optimiser() -> None:
    rng = np.random.default_rng(0)
    functions = rng.normal(size=(200, 3))
    wanted, ridge = np.array([0.5, -0.3, 0.1]), 0.01
    weights = balancing_weights(functions, wanted, ridge)

    def dual(tilt: np.ndarray) -> float:
        return float(logsumexp(functions @ tilt) - tilt @ wanted + 0.5 * ridge * tilt @ tilt)

    tilt = minimize(dual, np.zeros(3), method="BFGS", options={"gtol": 1e-9}).x
    expected = np.exp(functions @ tilt - logsumexp(functions @ tilt))
    np.testing.assert_allclose(weights, expected, rtol=1e-4)
    np.testing.assert_allclose(weights @ functions, wanted - ridge * tilt, atol=1e-5)


def test_a_wish_out_of_reach_ends_on_few_rows() -> None:
    functions = np.random.default_rng(1).normal(size=(200, 2))
    weights = balancing_weights(functions, np.array([50.0, 0.0]), 0.01)
    assert weights.sum() == pytest.approx(1.0)
    assert 1 / (weights @ weights) < 3


def test_chances_are_those_of_a_general_optimiser() -> None:
    rng = np.random.default_rng(2)
    design = np.column_stack([np.ones(300), rng.normal(size=(300, 2))])
    targets = (rng.random(300) < 0.7).astype(np.float64)

    def cost(weights: np.ndarray) -> float:
        forms = design @ weights
        penalty = 1e-6 * weights[0] ** 2 + 3.0 * weights[1:] @ weights[1:]
        return float(np.logaddexp(0, forms).sum() - targets @ forms + 0.5 * penalty)

    expected = minimize(cost, np.zeros(3), method="BFGS").x
    found = fit_chance(design, targets, 3.0)
    np.testing.assert_allclose(found, expected, atol=1e-3)
    assert chance(design, found).mean() == pytest.approx(targets.mean(), abs=1e-6)


def test_levels_are_linear_and_never_negative() -> None:
    design = np.column_stack([np.ones(50), np.linspace(-1, 1, 50)])
    found = fit_level(design, 2 + 3 * design[:, 1], 1e-9)
    np.testing.assert_allclose(found, [2.0, 3.0], atol=1e-4)
    assert level(design, found).min() == 0.0


def test_shares_of_a_mixture_are_found() -> None:
    rng = np.random.default_rng(3)
    means = rng.normal(size=(3, 10))
    truth = np.array([0.6, 0.4, 0.0])
    found = shares_that_fit(means, np.eye(10), truth @ means, np.full(3, 1 / 3))
    np.testing.assert_allclose(found, truth, atol=0.02)
    assert found.sum() == pytest.approx(1.0)


def test_the_misfit_of_pure_noise_is_about_one() -> None:
    # 2000 draws of a chi-square with 20 degrees over 20: mean 1, standard error 0.007
    rng = np.random.default_rng(4)
    noise = 1 / 50
    draws = [misfit(np.eye(20), rng.normal(scale=np.sqrt(noise), size=20), noise) for _ in range(2000)]
    assert np.mean(draws) == pytest.approx(1.0, abs=0.03)
