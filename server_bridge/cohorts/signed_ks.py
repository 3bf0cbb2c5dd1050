"""The signed two-sample Kolmogorov-Smirnov statistic of Algorithm 3."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import kolmogorov


def signed_ks_statistic(client: ArrayLike, reference: ArrayLike) -> float:
    """T = sign(D+ - D-) max(D+, D-) of a client's parameters against the reference's.

    Args:
        client: (n,) parameters of one client, finite, any order.
        reference: (m,) parameters of the reference model, finite, any order.

    Returns:
        In [-1, 1]; positive when the client's distribution lies lower. ``abs`` is the classical
        two-sided D, exact to one rounding: the differences are integers over n m. Where
        D+ = D- > 0 the sign is positive (fed-clma leaves it to the rounding of its fractions).

    Raises:
        ValueError: a sample is empty or not finite.

    Source: N L et al. 2024, Algorithm 3 lines 3-11; signed, since D itself is never negative.
    Cost: O((n + m) log(n + m)) time, O(n + m) memory.
    """
    low, high = _sorted_sample(client, "client"), _sorted_sample(reference, "reference")
    client_above = _largest_excess(low, high)
    reference_above = _largest_excess(high, low)
    scale = low.size * high.size
    return client_above / scale if client_above >= reference_above else -reference_above / scale


def ks_pvalue(statistic: float, n_client: int, n_reference: int) -> float:
    """Asymptotic two-sided p-value of a KS statistic, with Stephens' small-sample correction.

    The parameters of models trained from one start are no independent samples: the value ranks,
    it is no significance level.

    Args:
        statistic: signed or not; its magnitude counts.
        n_client: size of the client's sample, at least 1.
        n_reference: size of the reference sample, at least 1.

    Returns:
        In [0, 1].

    Source: Stephens 1970; Kolmogorov's limiting distribution.
    """
    root = math.sqrt(n_client * n_reference / (n_client + n_reference))
    return float(kolmogorov(abs(statistic) * (root + 0.12 + 0.11 / root)))


def _sorted_sample(values: ArrayLike, what: str) -> NDArray[Any]:
    sample = np.asarray(values).reshape(-1)
    if sample.size == 0:
        raise ValueError(f"the {what} sample is empty")
    if not np.isfinite(sample).all():
        raise ValueError(f"the {what} sample is not finite")
    return np.sort(sample)


def _largest_excess(upper: NDArray[Any], lower: NDArray[Any]) -> int:
    """Max of F_upper - F_lower times both sizes; attained at a point of ``upper``, at least 0."""
    counts_upper = np.arange(1, upper.size + 1, dtype=np.int64)
    counts_lower = np.searchsorted(lower, upper, side="right").astype(np.int64)
    return max(0, int((counts_upper * lower.size - counts_lower * upper.size).max()))
