"""Many standardised views to one statistic: the strongest evidence that any group of them gives.

In each view the columns of a part are judged by their largest square (one feature changed) and by the sum of their
squares (all changed a little), and the locations also by their Mahalanobis distance. Each of these statistics is
brought to one scale, minus the log of a tail probability, by the Chernoff bound of a chi-square with the mean and the
degrees of freedom that it has without a change; and that scale is evened out between the 10 % and the 1 % level, so
that no group speaks more often than another. Beyond, evidence grows like the logarithm, as the tail of Student's t does
where that of the normal distribution goes on: a part's variance is itself known from so many rows only, and from far
fewer where they depend on each other or vary in bursts. The largest is the statistic; its threshold is calibrated as
one.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

_UPPER, _LOWER = 0.10, 0.01
_MOST = 1e6
_LEAST_FREEDOM = 0.2
_LEAST_MEAN = 1e-9  # below, a statistic is rounding error
_LEAST_SLOPE, _LARGEST_SLOPE = 0.4, 1.15


@dataclass(frozen=True)
class Groups:
    """Which statistics there are, for the parts of a :class:`~edge_agent.drift.unlabelled.scoring.Scoring`.

    Attributes:
        starts: borders of the nine parts.
        inputs: columns of the inputs; they come first.
    """

    starts: tuple[int, ...]
    inputs: int

    @cached_property
    def borders(self) -> NDArray[np.int64]:
        """Where each part that has columns begins."""
        return np.array([a for a, b in zip(self.starts[:-1], self.starts[1:], strict=True) if b > a], np.int64)

    @cached_property
    def of_inputs(self) -> NDArray[np.bool_]:
        """(statistics of a view,) whether it is one of the inputs'."""
        inputs = self.borders < self.inputs
        return np.concatenate([inputs, inputs, [True]])

    @property
    def count(self) -> int:
        """Statistics of a view."""
        return 2 * len(self.borders) + 1

    def __call__(self, views: NDArray[np.float32]) -> NDArray[np.float32]:
        """The statistics of (..., 8, columns) standardised views, (..., 8, count): largest squares, sums, distance.

        Cost: O(8 columns).
        """
        squares = views * views
        found = np.empty((*views.shape[:-1], self.count), np.float32)
        parts = len(self.borders)
        # squares are ordered as their bits are, and whole numbers are compared in less than half the time
        bits, largest = squares.view(np.int32), found[..., :parts].view(np.int32)
        np.maximum.reduceat(bits, self.borders, axis=-1, out=largest)
        np.add.reduceat(squares, self.borders, axis=-1, out=found[..., parts : 2 * parts])
        size = self.starts[1]
        conditional = views[..., self.starts[2] : self.starts[3]]
        np.einsum("...c,...c->...", views[..., :size], conditional, out=found[..., -1])
        return found


@dataclass(frozen=True)
class Scale:
    """How statistics become evidence.

    Attributes:
        mean: (statistics,) without a change, > 0.
        freedom: (statistics,) degrees of freedom of a chi-square of the same mean and variance, > 0.
        slope, shift: (statistics,) of the line that evens the evidence out.
        reach: (statistics,) up to about which evidence is taken as it is, and from which on as its logarithm.
    """

    mean: NDArray[np.float32]
    freedom: NDArray[np.float32]
    slope: NDArray[np.float32]
    shift: NDArray[np.float32]
    reach: NDArray[np.float32]

    @classmethod
    def of(cls, statistics: NDArray[np.float32], reach: NDArray[np.float32]) -> "Scale":
        """From (draws, statistics) without a change, and (statistics,) half the degrees of freedom of their variances.

        Source: minus the log of the tail of z^2 where its variance has nu degrees of freedom is about
            nu / 2 log(1 + z^2 / nu); without end for nu it is that of a chi-square.
        Cost: O(draws x statistics).
        """
        mean = np.maximum(statistics.mean(axis=0, dtype=np.float64), _LEAST_MEAN)
        variance = np.maximum(statistics.var(axis=0, dtype=np.float64), 1e-24)
        freedom = np.maximum(2.0 * np.square(mean) / variance, _LEAST_FREEDOM)
        plain = np.ones(len(mean), np.float32)
        raw = cls(mean.astype(np.float32), freedom.astype(np.float32), plain, 0 * plain, np.inf * plain)
        low, high = np.quantile(raw._plain(statistics), [1.0 - _UPPER, 1.0 - _LOWER], axis=0)
        slope = np.log(_UPPER / _LOWER) / np.maximum(high - low, 1e-6)
        slope = np.clip(slope, _LEAST_SLOPE, _LARGEST_SLOPE)
        shift = -np.log(_LOWER) - slope * high
        return cls(raw.mean, raw.freedom, slope.astype(np.float32), shift.astype(np.float32), reach)

    @cached_property
    def _factors(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return (1.0 / self.mean).astype(np.float32), (0.5 * self.freedom * self.slope).astype(np.float32)

    @cached_property
    def _per_reach(self) -> NDArray[np.float32]:
        return (1.0 / self.reach).astype(np.float32)

    def __call__(self, statistics: NDArray[np.float32]) -> NDArray[np.float32]:
        """The evidence of (..., statistics), finite."""
        evidence = self._plain(statistics)
        evidence *= self._per_reach
        np.log1p(evidence, out=evidence)
        evidence *= self.reach
        evidence += self.shift
        return evidence

    def _plain(self, statistics: NDArray[np.float32]) -> NDArray[np.float32]:
        """By the Chernoff bound, without the shift; >= 0."""
        inverse, half = self._factors
        ratio = statistics * inverse
        np.maximum(ratio, 1.0, out=ratio)
        np.minimum(ratio, _MOST, out=ratio)
        evidence = ratio - np.log(ratio)
        evidence -= 1.0
        evidence *= half
        return np.asarray(evidence)
