"""The signed two-sample Kolmogorov-Smirnov statistic of Algorithm 3."""

import math
from typing import Any

from numpy.typing import ArrayLike, DTypeLike
from scipy.special import kolmogorov

from server_bridge.cohorts.ks_search import largest_excess
from server_bridge.cohorts.ordered_keys import precision_for, sample, sorted_keys


class KsReference:
    """A reference model's parameters, sorted once for all clients.

    Args:
        reference: (m,) finite, any order, float32 or float64; other real types are converted.
        client_types: types of the clients' parameters, where they may be wider than the reference's.

    Raises:
        ValueError: no parameters, parameters that are not finite, or a type wider than float64.

    Cost: O(m log m) time, O(m) memory.
    """

    def __init__(self, reference: ArrayLike, *client_types: DTypeLike) -> None:
        values = sample(reference, "reference")
        self.size = values.size
        self._precision = precision_for(values.dtype, *client_types)
        self._keys = sorted_keys(values, self._precision, "reference")

    def scaled_statistic(self, client: ArrayLike, what: str = "client") -> int:
        """T n m, which is an integer.

        Args:
            client: (n,) finite, any order; read in blocks, so it may be mapped from a file.
            what: names the sample in an error.

        Returns:
            T as :func:`signed_ks_statistic` defines it, times both sizes.

        Raises:
            ValueError: the sample is empty, not finite, or of a wider type than announced.

        Cost: O(n log n) to sort the client's n keys, which is most of it; their memory.
        """
        values = sample(client, what)
        if precision_for(values.dtype, self._precision) != self._precision:
            raise ValueError(f"the {what} sample is {values.dtype}, wider than the reference's {self._precision}")
        excess = largest_excess(sorted_keys(values, self._precision, what), self._keys)
        return excess.client if excess.client >= excess.reference else -excess.reference

    def statistic(self, client: ArrayLike, what: str = "client") -> float:
        """T; see :func:`signed_ks_statistic` and :meth:`scaled_statistic`."""
        values = sample(client, what)
        return self.scaled_statistic(values, what) / (values.size * self.size)


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
    Cost: O(m log m + n log n); many clients with one reference: :class:`KsReference`.
    """
    values: Any = sample(client, "client")
    return KsReference(reference, values.dtype).statistic(values)


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
