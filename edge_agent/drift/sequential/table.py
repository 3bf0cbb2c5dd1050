"""How much each loss speaks for each of several rises of the level, read from a reference's distribution."""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.rises import LOSS_CAP
from edge_agent.errors import DataError

BINS = 160
"""Losses are told apart no finer than this; single values where the reference has no more different ones."""
# Half of the bins share the body of the distribution evenly, the others the upper tail down to one sample.
_BODY = 80
# Drifts that are looked for: the tail's mean multiplied (a Lehmann alternative on the ranks), the clipped loss's mean
# raised, and losses above the 0.9 quantile made more frequent, both in standard deviations; and each one's share of the
# mixture. Larger drifts have more since they have fewer samples to make up for a small share.
_TAIL_FACTORS = (1.2, 2.0, 6.0)
_RISES = (0.1, 0.3, 1.0)
_SHARES = (0.5, 1.0, 2.0) * 3
KINDS = 3
TILTS = len(_SHARES)
WEIGHTS = np.array(_SHARES) / sum(_SHARES)
_HIGH_QUANTILE = 0.9
_KNOWN_TO = 1.5
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
        """Of (n,) losses, n >= 1, finite ones cut at ``LOSS_CAP``; the arrays' sizes depend on ``bins`` alone.

        Raises:
            DataError: not one dimension, or no finite loss.
        """
        values = np.asarray(losses, np.float64)
        if values.ndim != 1 or not np.isfinite(values).any():
            raise DataError(f"losses of shape {values.shape} have no finite one", "give one loss a sample")
        values = np.where(np.isfinite(values), np.minimum(values, LOSS_CAP), np.inf)
        knots = _knots(np.sort(values[np.isfinite(values)]), bins)
        numbers = binned(knots, values)
        sums = np.bincount(numbers, np.where(numbers < bins, values, 0.0), bins + 1)
        seen = np.bincount(numbers, minlength=bins + 1).astype(np.float64)
        means = np.minimum(sums[:-1] / np.maximum(seen[:-1], 1), knots)
        levels = np.append(np.where(seen[:-1] > 0, means, knots), knots[-1])
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
        """(3, m + 1) what tilts are made of, of mean 0 and variance 1 under the counts.

        The first is -log(1 - rank), exponential if all losses differ; the second the loss clipped at its 0.99 quantile,
        or not clipped where hardly any lies above zero; the third whether it is above the 0.9 quantile. One that is the
        same for all losses is replaced by the first.
        """
        shares = self.counts / self.counts.sum()
        ranks = np.cumsum(shares) - shares / 2
        highest = 1 - 0.5 / self.counts.sum()
        tail = -np.log1p(-np.minimum(ranks, highest))
        clip = self.levels[np.searchsorted(np.cumsum(shares), _CLIP_QUANTILE)]
        clipped = np.minimum(self.levels, clip)
        if shares @ np.square(clipped - shares @ clipped) <= 0:
            clipped = self.levels
        high = (ranks > _HIGH_QUANTILE).astype(np.float64)
        ranked = _standardised(tail, shares)
        others = [_standardised(values, shares) for values in (clipped, high)]
        return np.stack([ranked, *(values if values.any() else ranked for values in others)])

    def _seen_mean(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """(kinds, 1) of the samples that were seen, without the one that was added above all."""
        seen = self.counts.copy()
        seen[-1] -= 1
        means: NDArray[np.float64] = scores @ seen / seen.sum()
        return means[:, None]

    def table(self, *, inflation: float, margin: float) -> "Table":
        """What a loss in each bin adds to the log likelihood ratio of each drift.

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
        scores = self.scores()
        thetas = [1 - 1 / factor for factor in _TAIL_FACTORS]
        for row in scores[1:]:
            most = _LARGEST_TILT / max(_LARGEST_TILT, float(row.max()))
            thetas += [min(rise, most) for rise in _RISES]
        kinds = np.repeat(np.arange(KINDS), TILTS // KINDS)
        rows = [_tilted(scores[kind], shares, theta, margin * error) for kind, theta in zip(kinds, thetas, strict=True)]
        slopes = np.where(kinds == np.arange(KINDS)[:, None], np.array(thetas), 0.0)
        return Table(
            increments=np.stack(rows, axis=1) / inflation,
            scores=np.ascontiguousarray((scores - self._seen_mean(scores)).T),
            slopes=slopes / inflation,
            rows=float(self.counts.sum()),
            limit=_KNOWN_TO * error,
        )


@dataclass(frozen=True, slots=True)
class Table:
    """What each bin says, and how that changes with what a stream's own past says of the level.

    Attributes:
        increments: (m + 1, tilts), of the log likelihood ratios.
        scores: (m + 1, kinds), what tilts are made of, with mean 0 over the reference.
        slopes: (kinds, tilts) by how much increments fall where the mean score is higher by one.
        rows: of the reference.
        limit: the mean score is taken to lie no farther than this from the reference's.
    """

    increments: NDArray[np.float64]
    scores: NDArray[np.float64]
    slopes: NDArray[np.float64]
    rows: float
    limit: float

    def corrections(self, sums: NDArray[np.float64], count: int | NDArray[np.int64]) -> NDArray[np.float64]:
        """What increments are to be lowered by, from a stream's past scores.

        The reference's mean score is 0 with the error of its rows; the past, of ``count`` samples, corrects it as far
        as that error reaches and no farther, so that a slow drift is not learned as if it had always been.

        Args:
            sums: (..., kinds) of the past's scores.
            count: samples in it; (..., 1) where they differ.

        Returns:
            (..., tilts).

        Source: the posterior mean of a normal mean, both samples with the same variance.
        """
        means = np.minimum(np.maximum(sums / (self.rows + count), -self.limit), self.limit)
        lowered: NDArray[np.float64] = means @ self.slopes
        return lowered


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
