"""How much each loss speaks for each of several rises of the level, read from a reference's distribution."""

import math
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.rises import LOSS_CAP
from edge_agent.errors import DataError

BINS = 163
"""Losses are told apart no finer than this; single values where the reference has no more different ones."""
# Half of the bins that hold losses share the body of the distribution evenly, the others the upper tail down to one
# sample. Above the largest loss come further ones: so many times the reference's whole range above it.
_BODY = 80
_BEYOND = (0.25, 0.6, 1.0)
# One sample that was never seen is imagined there, so that what never happened is unlikely and not impossible, the
# farther the less likely (about as the fourth power of the loss).
_IMAGINED = (0.7, 0.2, 0.07, 0.03)

KINDS = 5
"""What tilts are made of, see ``Distribution.scores``."""
_SIZE, _TAIL, _TENTH, _FIFTH, _HALF = range(KINDS)
# Losses above these quantiles are counted.
_QUANTILES = {_TENTH: 0.9, _FIFTH: 0.8, _HALF: 0.5}
# Drifts that are looked for: of which kind; how far its mean rises, in standard deviations (of the tail: by how much
# its mean is multiplied); by e to what at most a single sample changes the odds; and its part of the mixture.
_DRIFTS = (
    (_SIZE, 0.1, 3.0, 0.5),
    (_SIZE, 0.2, 3.0, 1.0),
    (_SIZE, 0.3, 3.0, 1.0),
    (_SIZE, 1.0, 5.0, 0.5),
    (_TAIL, 1.2, math.inf, 0.3),
    (_TENTH, 0.3, 3.0, 1.0),
    (_TENTH, 1.0, 3.0, 0.3),
    (_FIFTH, 0.3, 3.0, 1.0),
    (_HALF, 0.3, 3.0, 1.0),
)
TILTS = len(_DRIFTS)
# How large losses are says most where they are independent. Where they are not, single large ones come in bursts, and
# how many are above a quantile says more: from this variance inflation on the sizes' part of the mixture falls as its
# square.
_SIZES_PART = 0.95
_BURSTS = 1.5
_KNOWN_TO = 1.5


@dataclass(frozen=True, slots=True)
class Distribution:
    """A reference's losses in bins.

    Attributes:
        knots: (m,) float64, ascending, may repeat at the end; bin i holds losses above knot i - 1 and up to knot i, the
            last one, m, what lies above all and what is not finite.
        counts: (m + 1,) float64 samples in each bin; the last four, above the largest loss, have one more than was
            seen.
        levels: (m + 1,) float64, the mean loss in each bin, for the reports and the sizes.
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
        ordered = np.sort(values[np.isfinite(values)])
        beyond = ordered[-1] + (ordered[-1] - ordered[0]) * np.array(_BEYOND)
        knots = np.append(_knots(ordered, bins - len(_BEYOND)), np.minimum(beyond, LOSS_CAP))
        numbers = binned(knots, values)
        sums = np.bincount(numbers, np.where(numbers < bins, values, 0.0), bins + 1)
        seen = np.bincount(numbers, minlength=bins + 1).astype(np.float64)
        means = np.minimum(sums[:-1] / np.maximum(seen[:-1], 1), knots)
        levels = np.append(np.where(seen[:-1] > 0, means, knots), knots[-1])
        return cls(knots, seen + _imagined(knots), levels)

    @property
    def mean(self) -> float:
        """Of the losses that were seen, those that are not finite counted as above all others."""
        seen = self._seen
        return float(self.levels @ seen / seen.sum())

    @property
    def deviation(self) -> float:
        """Standard deviation of the losses that were seen."""
        seen = self._seen
        return math.sqrt(float((self.levels - self.mean) ** 2 @ seen / seen.sum()))

    def spread(self, count: int) -> NDArray[np.float64]:
        """(count,) losses that stand for those that were seen: the middles of as many equal parts, ascending."""
        reached = np.cumsum(self._seen)
        middles = (np.arange(count) + 0.5) / count * reached[-1]
        found: NDArray[np.float64] = self.levels[np.searchsorted(reached, middles)]
        return found

    @property
    def _seen(self) -> NDArray[np.float64]:
        return self.counts - _imagined(self.knots)

    def recounted(self, numbers: NDArray[np.int64]) -> "Distribution":
        """The same bins with the counts of other samples, given by their bins' numbers."""
        counts = np.bincount(numbers, minlength=len(self.counts)).astype(np.float64)
        return Distribution(self.knots, counts + _imagined(self.knots), self.levels)

    def scores(self) -> NDArray[np.float64]:
        """(5, m + 1) what tilts are made of, of mean 0 and variance 1 under the counts.

        The loss itself; -log(1 - rank), exponential if all losses differ; whether the loss is above the 0.9, the 0.8
        and the 0.5 quantile. One that is the same for all losses is replaced by the second.
        """
        shares = self.counts / self.counts.sum()
        ranks = np.cumsum(shares) - shares / 2
        highest = 1 - 0.5 / self.counts.sum()
        tail = -np.log1p(-np.minimum(ranks, highest))
        above = [(ranks > quantile).astype(np.float64) for quantile in _QUANTILES.values()]
        found = [_standardised(values, shares) for values in (self.levels, tail, *above)]
        return np.stack([values if values.any() else found[_TAIL] for values in found])

    def _seen_mean(self, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """(kinds, 1) of the samples that were seen, without the one that was imagined."""
        seen = self._seen
        means: NDArray[np.float64] = scores @ seen / seen.sum()
        return means[:, None]

    def table(self, *, inflation: float, margin: float, body_rows: float = math.inf) -> "Table":
        """What a loss in each bin adds to the log likelihood ratio of each drift.

        Args:
            inflation: of a mean's variance by autocorrelation; what a sample says is divided by it.
            margin: standard errors of the reference's mean score by which the reference is taken to be better than the
                world: a level that is known badly must not look like a small rise.
            body_rows: samples that told all but the largest losses, where fewer did than are counted.

        Source: exponential tilting (Cox and Miller 1965): the increment is theta g - log E exp(theta g) with the
            expectation over the reference, so that exp(increment) has mean 1 there, as an e-value has.
        Cost: O(m).
        """
        shares = self.counts / self.counts.sum()
        rows = min(float(self.counts.sum()), body_rows)
        of_sizes, error = math.sqrt(inflation / self.counts.sum()), math.sqrt(inflation / rows)
        scores = self.scores()
        kinds = np.array([kind for kind, *_ in _DRIFTS])
        thetas = [_theta(kind, rise, most / float(scores[kind].max())) for kind, rise, most, _ in _DRIFTS]
        worse = [margin * (of_sizes if kind == _SIZE else error) for kind in kinds]
        tilted = [
            _tilted(scores[kind], shares, theta, by) for kind, theta, by in zip(kinds, thetas, worse, strict=True)
        ]
        slopes = np.where(kinds == np.arange(KINDS)[:, None], np.array(thetas), 0.0)
        return Table(
            increments=np.stack(tilted, axis=1) / inflation,
            scores=np.ascontiguousarray((scores - self._seen_mean(scores)).T),
            slopes=slopes / inflation,
            rows=rows,
            limit=_KNOWN_TO * error,
            weights=_weights(inflation),
        )


@dataclass(frozen=True, slots=True)
class Table:
    """What each bin says, and how that changes with what a stream's own past says of the level.

    Attributes:
        increments: (m + 1, tilts), of the log likelihood ratios.
        scores: (m + 1, kinds), what tilts are made of, with mean 0 over the reference.
        slopes: (kinds, tilts) by how much increments fall where the mean score is higher by one.
        rows: that told the reference's body.
        limit: the mean score is taken to lie no farther than this from the reference's.
        weights: (tilts,) each one's part of the mixture, together 1.
    """

    increments: NDArray[np.float64]
    scores: NDArray[np.float64]
    slopes: NDArray[np.float64]
    rows: float
    limit: float
    weights: NDArray[np.float64]

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


def _imagined(knots: NDArray[np.float64]) -> NDArray[np.float64]:
    """(m + 1,) counts, together 1; where all losses are the same, none lies between them and what is above all."""
    counts = np.zeros(len(knots) + 1)
    if knots[-1] > knots[-1 - len(_BEYOND)]:
        counts[-len(_IMAGINED) :] = _IMAGINED
    else:
        counts[-1] = 1.0
    return counts


def _theta(kind: int, rise: float, most: float) -> float:
    """A tilt; an exponential's mean is multiplied by 1 / (1 - theta)."""
    return 1 - 1 / rise if kind == _TAIL else min(rise, most)


def _weights(inflation: float) -> NDArray[np.float64]:
    sizes = _SIZES_PART * min(1.0, (_BURSTS / inflation) ** 2)
    parts = np.array([part for *_, part in _DRIFTS])
    of_size = np.array([kind == _SIZE for kind, *_ in _DRIFTS])
    weights: NDArray[np.float64] = np.where(
        of_size, sizes * parts / parts[of_size].sum(), (1 - sizes) * parts / parts[~of_size].sum()
    )
    return weights


def _tilted(
    scores: NDArray[np.float64], shares: NDArray[np.float64], theta: float, worse: float
) -> NDArray[np.float64]:
    return theta * (scores - worse) - math.log(float(shares @ np.exp(theta * scores)))
