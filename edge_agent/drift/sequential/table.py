"""How much each loss speaks for each of several rises of the level, read from a reference's distribution."""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import DataError

BINS = 160
"""Losses are told apart no finer than this; single values where the reference has no more different ones."""
# Half of the bins share the body of the distribution evenly, the others the upper tail down to one sample.
_BODY = 80
# Drifts that are looked for: the tail's mean multiplied (a Lehmann alternative on the ranks), and the clipped
# loss's mean raised, in its standard deviations; and how much each one's share of the mixture is. Larger ones have more
# since they have fewer samples to make up for a small share.
_TAIL_FACTORS = (1.2, 2.0, 6.0)
_RISES = (0.1, 0.3, 1.0)
_SHARES = (0.5, 1.0, 2.0, 0.5, 1.0, 2.0)
TILTS = len(_SHARES)
WEIGHTS = np.array(_SHARES) / sum(_SHARES)
# The clipped loss is clipped at this quantile.
_CLIP_QUANTILE = 0.99
# No single loss of a rare kind makes a rise's odds larger than e to this.
_LARGEST_TILT = 3.0


@dataclass(frozen=True, slots=True)
class Distribution:
    """A reference's losses in bins.

    Attributes:
        knots: (m,) float64, ascending, may repeat at the end; bin i holds losses above knot i - 1 and up to knot i, the
            last one, m, what lies above all and what is not finite.
        counts: (m + 1,) float64 samples in each bin; the last has one more than was seen, so that what never happened
            is unlikely and not impossible.
        levels: (m + 1,) float64, the mean loss in each bin, for the reports and the clipped score.
    """

    knots: NDArray[np.float64]
    counts: NDArray[np.float64]
    levels: NDArray[np.float64]

    @classmethod
    def of(cls, losses: NDArray[Any], bins: int = BINS) -> Self:
        """Of (n,) losses, n >= 1; the arrays' sizes depend on ``bins`` alone.

        Raises:
            DataError: not one dimension, or no finite loss.
        """
        values = np.asarray(losses, np.float64)
        if values.ndim != 1 or not np.isfinite(values).any():
            raise DataError(f"losses of shape {values.shape} have no finite one", "give one loss a sample")
        knots = _knots(np.sort(values[np.isfinite(values)]), bins)
        numbers = binned(knots, values)
        sums = np.bincount(numbers, np.where(numbers < bins, values, 0.0), bins + 1)
        seen = np.bincount(numbers, minlength=bins + 1).astype(np.float64)
        levels = np.append(np.where(seen[:-1] > 0, sums[:-1] / np.maximum(seen[:-1], 1), knots), knots[-1])
        seen[-1] += 1
        return cls(knots, seen, levels)

    @property
    def mean(self) -> float:
        """Of the losses, those above all others counted as the largest."""
        return float(self.levels @ self.counts / self.counts.sum())

    def recounted(self, numbers: NDArray[np.int64]) -> "Distribution":
        """The same bins with the counts of other samples, given by their bins' numbers."""
        counts = np.bincount(numbers, minlength=len(self.counts)).astype(np.float64)
        counts[-1] += 1
        return Distribution(self.knots, counts, self.levels)

    def scores(self) -> NDArray[np.float64]:
        """(2, m + 1) what tilts are made of, of mean 0 and variance 1 under the counts (0 where that cannot be).

        The first is -log(1 - rank), exponential if all losses differ; the second the loss clipped at its 0.99 quantile,
        or not clipped where hardly any lies above zero.
        """
        shares = self.counts / self.counts.sum()
        ranks = np.cumsum(shares) - shares / 2
        highest = 1 - 0.5 / self.counts.sum()
        tail = -np.log1p(-np.minimum(ranks, highest))
        clip = self.levels[np.searchsorted(np.cumsum(shares), _CLIP_QUANTILE)]
        clipped = np.minimum(self.levels, clip)
        if shares @ np.square(clipped - shares @ clipped) <= 0:
            clipped = self.levels
        return np.stack([_standardised(tail, shares), _standardised(clipped, shares)])

    def increments(self, *, inflation: float, margin: float) -> NDArray[np.float64]:
        """(m + 1, tilts) what a loss in a bin adds to the log likelihood ratio of each rise.

        Args:
            inflation: of a mean's variance by autocorrelation; what a sample says is divided by it.
            margin: standard errors of the reference's mean score by which the reference is taken to be better than the
                world: a level that is known badly must not look like a small rise.

        Source: exponential tilting (Cox and Miller 1965): the increment is theta g - log E exp(theta g) with the
            expectation over the reference, so that exp(increment) has mean 1 there, as an e-value has.
        Cost: O(m).
        """
        shares = self.counts / self.counts.sum()
        error = math.sqrt(inflation / self.counts.sum())
        tail, clipped = self.scores()
        rows = [_tilted(tail, shares, 1 - 1 / factor, margin * error) for factor in _TAIL_FACTORS]
        most = _LARGEST_TILT / max(_LARGEST_TILT, float(clipped.max()))
        rows += [_tilted(clipped, shares, min(rise, most), margin * error) for rise in _RISES]
        return np.stack(rows, axis=1) / inflation


def binned(knots: NDArray[np.float64], losses: NDArray[np.float64]) -> NDArray[np.int64]:
    """The bins' numbers; NaN and infinity are in the last.

    Cost: O(n log m).
    """
    numbers: NDArray[np.int64] = np.searchsorted(knots, losses, side="left")
    return numbers


def _knots(ordered: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    """(bins,) ascending; the largest loss is repeated to fill them."""
    different = ordered[np.append(True, ordered[1:] > ordered[:-1])]
    if len(different) > bins:
        body = np.linspace(0, 0.95, _BODY)
        tail = 1 - np.geomspace(0.05, 1 / len(ordered), bins - _BODY)
        places = np.concatenate([body, tail]) * (len(ordered) - 1)
        different = ordered[np.ceil(places - 1e-9).astype(np.int64)]
        different = different[np.append(True, different[1:] > different[:-1])]
    knots = np.full(bins, ordered[-1])
    knots[: len(different)] = different
    return knots


def _standardised(scores: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = scores - shares @ scores
    spread = math.sqrt(float(shares @ np.square(centred)))
    return centred / spread if spread > 0 else np.zeros_like(centred)


def _tilted(
    scores: NDArray[np.float64], shares: NDArray[np.float64], theta: float, worse: float
) -> NDArray[np.float64]:
    return theta * (scores - worse) - math.log(float(shares @ np.exp(theta * scores)))
