"""The evidence for a rise that began at any time: a Shiryaev-Roberts sum, mixed over rises, sample by sample."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.sequential.table import TILTS, WEIGHTS

# Simulated streams go on after they have alarmed; their sums stay finite.
_OVERFLOW = 1e200
# A climb is cut down to this many times what evidence is.
_CLIMB = 2.0
# Products of so many factors stay within float64's range; longer batches are taken in parts.
_PART = 32


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the samples up to now say.

    Attributes:
        sums: (tilts,) float64, the mixture's parts; their sum's logarithm is the statistic.
        climbs: (tilts,) float64, each log likelihood ratio above its lowest value so far.
        runs: (tilts,) int64, samples since that lowest value: since then the level is risen, if it is.
        losses: (tilts,) float64, the sum of those samples' levels.
    """

    sums: NDArray[np.float64]
    climbs: NDArray[np.float64]
    runs: NDArray[np.int64]
    losses: NDArray[np.float64]

    @classmethod
    def none(cls) -> "Evidence":
        """Nothing seen yet."""
        zeros = np.zeros(TILTS)
        return cls(zeros, zeros, np.zeros(TILTS, np.int64), zeros)

    @property
    def began(self) -> tuple[int, float]:
        """Samples since the most likely begin of a rise, and their mean level (NaN: none)."""
        best = int(np.argmax(self.climbs))
        run = int(self.runs[best])
        return run, float(self.losses[best]) / run if run else float("nan")


def advance(
    evidence: Evidence, increments: NDArray[np.float64], levels: NDArray[np.float64], most: float
) -> tuple[Evidence, float]:
    """The next samples of one stream.

    Args:
        evidence: not changed.
        increments: (n, tilts) of the samples, in order, n >= 1.
        levels: (n,) their losses, finite.
        most: logarithm to which evidence is cut down after these samples, so that it is gone soon after a rise is; the
            parts keep their proportions, so that what spoke loudest and forgets fastest still does.

    Returns:
        The evidence, and the largest statistic after any of the samples (not cut down).

    Source: Shiryaev 1963, Roberts 1966; mixed, as an e-detector, Shin, Ramdas and Rinaldo 2024. The change point is
        that of Page 1954. Evidence does not depend on how samples are cut into calls (to rounding), as long as it
        is not cut down.
    Cost: O(n x tilts).
    """
    largest = 0.0
    sums = evidence.sums
    for start in range(0, len(increments), _PART):
        products = np.exp(np.cumsum(increments[start : start + _PART], axis=0))
        begun = np.concatenate([np.ones((1, TILTS)), 1 / products[:-1]]).cumsum(axis=0)
        path = products * (sums + WEIGHTS * begun)
        largest = max(largest, float(path.sum(axis=1).max()))
        sums = path[-1]
    following = _climbed(evidence, increments, levels, most)
    total = float(sums.sum())
    kept = sums * min(1.0, float(np.exp(most)) / total)
    return Evidence(kept, *following), float(np.log(largest))


def statistics(factors: NDArray[np.float64], numbers: NDArray[np.integer]) -> NDArray[np.float64]:
    """The largest statistic in each batch of many streams that start afresh.

    Args:
        factors: (bins, tilts), exp of the increments.
        numbers: (streams, batches, batch_size) bins of the samples.

    Returns:
        (streams, batches) float64.

    Cost: O(size x tilts), fastest with hundreds of streams; memory twice ``numbers``.
    """
    streams, batches, size = numbers.shape
    by_time = np.ascontiguousarray(np.moveaxis(numbers, 0, 2), dtype=np.intp)
    found = np.empty((batches, streams))
    paths = np.empty((size, streams, TILTS))
    drawn = np.empty_like(paths)
    totals, ones = np.empty((size, streams)), np.ones(TILTS)
    last = np.zeros((streams, TILTS))
    for batch, rows in enumerate(by_time):
        np.take(factors, rows, axis=0, out=drawn, mode="clip")
        for path, factor in zip(paths, drawn, strict=True):
            np.add(last, WEIGHTS, out=path)
            np.multiply(path, factor, out=path)
            last = path
        np.matmul(paths, ones, out=totals)
        totals.max(axis=0, out=found[batch])
        last = np.minimum(last, _OVERFLOW)
    return np.log(found).T


def _climbed(
    evidence: Evidence, increments: NDArray[np.float64], levels: NDArray[np.float64], most: float
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64]]:
    paths = evidence.climbs + np.cumsum(increments, axis=0)
    lowest = np.minimum(np.minimum.accumulate(paths, axis=0), 0.0)
    at_lowest = (paths <= lowest)[::-1]
    fell = at_lowest.any(axis=0)
    since = np.where(fell, at_lowest.argmax(axis=0), len(levels))
    total = np.concatenate([[0.0], np.cumsum(levels[::-1])])
    climbs = paths[-1] - lowest[-1]
    return (
        climbs * min(1.0, _CLIMB * most / max(1e-300, float(climbs.max()))),
        np.where(fell, since, evidence.runs + len(levels)),
        np.where(fell, total[since], evidence.losses + total[-1]),
    )
