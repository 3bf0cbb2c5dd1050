import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from server_bridge.cohorts.signed_ks import ks_pvalue, signed_ks_statistic

values = st.lists(st.floats(-1e6, 1e6, width=32) | st.sampled_from([0.0, 1.0, -1.0]), min_size=1, max_size=60)


def _scipy(client: list[float], reference: list[float]) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of the p-value, which nobody asked for
        return float(stats.ks_2samp(client, reference, method="asymp").statistic)


def _literal(client: NDArray[np.float64], reference: NDArray[np.float64]) -> tuple[float, float]:
    """D+ and D- by evaluating both distribution functions at every point."""
    points = np.concatenate([client, reference])
    above = [(client <= p).mean() - (reference <= p).mean() for p in points]
    return max(0.0, *above), max(0.0, *(-a for a in above))


@given(values, values)
def test_the_magnitude_is_scipys_two_sided_statistic(client: list[float], reference: list[float]) -> None:
    assert abs(signed_ks_statistic(client, reference)) == pytest.approx(_scipy(client, reference), rel=0, abs=2e-16)


@given(values, values)
def test_the_sign_says_which_excess_is_larger(client: list[float], reference: list[float]) -> None:
    low, high = _literal(np.array(client), np.array(reference))
    statistic = signed_ks_statistic(client, reference)
    if abs(low - high) > 1e-12:
        assert (statistic > 0) == (low > high)


@given(values, st.randoms(use_true_random=False))
def test_order_does_not_matter_and_equal_samples_give_zero(sample: list[float], random: object) -> None:
    shuffled = list(sample)
    random.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis hands out a random.Random
    assert signed_ks_statistic(shuffled, sample) == 0.0


def test_a_distribution_that_lies_lower_is_positive() -> None:
    rng = np.random.default_rng(0)
    sample = rng.normal(size=500)
    assert signed_ks_statistic(sample - 1, sample) > 0.2
    assert signed_ks_statistic(sample + 1, sample) < -0.2
    assert signed_ks_statistic(sample - 100, sample) == 1.0


def test_float32_and_large_unequal_samples_agree_with_scipy() -> None:
    rng = np.random.default_rng(1)
    client, reference = rng.normal(size=20_011).astype(np.float32), rng.normal(0.01, 1, 30_013).astype(np.float32)
    expected = stats.ks_2samp(client, reference).statistic
    assert abs(signed_ks_statistic(client, reference)) == pytest.approx(expected, rel=0, abs=2e-16)


@pytest.mark.parametrize("bad", [[], [np.nan], [1.0, np.inf]])
def test_empty_and_non_finite_samples_are_refused(bad: list[float]) -> None:
    with pytest.raises(ValueError, match="sample is"):
        signed_ks_statistic(bad, [1.0])
    with pytest.raises(ValueError, match="sample is"):
        signed_ks_statistic([1.0], bad)


def test_the_p_value_ranks_and_matches_the_exact_one() -> None:
    rng = np.random.default_rng(2)
    client, reference = rng.normal(size=300), rng.normal(0.15, 1, 250)
    exact = stats.ks_2samp(client, reference, method="exact")
    assert ks_pvalue(-exact.statistic, 300, 250) == pytest.approx(exact.pvalue, rel=0.05)
    assert ks_pvalue(0.0, 10, 10) == 1.0
    assert ks_pvalue(1.0, 10_000, 10_000) == pytest.approx(0.0, abs=1e-300)
