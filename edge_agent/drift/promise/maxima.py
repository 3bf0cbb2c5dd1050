"""From the statistics of many streams to the threshold that they cross at a given rate."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

# The first part of each stream only brings the monitor to its steady state.
_SETTLING_SHARE = 4
_CROSSINGS_SHOWN = 30
# A tail's slope is read over this factor in the rate.
_SLOPE_FACTOR = 4.0


@dataclass(frozen=True, slots=True)
class Maxima:
    """The largest statistic of each stream, over its settling part and over all of it.

    Attributes:
        settling: (streams,) over the first ``settled`` batches.
        whole: (streams,) over all ``batches``.
        settled: batches.
        batches: of a stream.
    """

    settling: NDArray[np.float64]
    whole: NDArray[np.float64]
    settled: int
    batches: int

    @classmethod
    def of(cls, statistics: NDArray[np.float64]) -> Self:
        """Of (streams, batches) statistics."""
        batches = statistics.shape[1]
        settled = batches // _SETTLING_SHARE
        settling = statistics[:, :settled].max(axis=1, initial=-np.inf)
        return cls(settling, np.maximum(settling, statistics[:, settled:].max(axis=1)), settled, batches)

    @classmethod
    def joined(cls, parts: "list[Maxima]") -> "Maxima":
        """Of streams of one length, from parts."""
        return Maxima(
            np.concatenate([part.settling for part in parts]),
            np.concatenate([part.whole for part in parts]),
            parts[0].settled,
            parts[0].batches,
        )

    def rate_above(self, threshold: float) -> float:
        """Crossings a batch of monitors that have settled without one.

        Returns:
            ``inf`` where every stream crosses.
        """
        before = float((self.settling <= threshold).mean())
        after = float((self.whole <= threshold).mean())
        return math.log(before / after) / (self.batches - self.settled) if after > 0 else math.inf

    def threshold_at(self, rate: float) -> float:
        """The threshold that is crossed at this rate.

        Below the rate at which all streams together show 30 crossings the tail is taken to be exponential in the
        statistic, as that of a log likelihood ratio is.

        Source: first passages of a settled monitor are as good as exponential, so of streams of L batches a share
            exp(-L rate) stays below the threshold.
        Cost: O(streams log streams).
        """
        shown = _CROSSINGS_SHOWN / (len(self.whole) * self.batches)
        at = self._shown_at(max(rate, shown))
        if rate >= shown:
            return at
        slope = (at - self._shown_at(shown * _SLOPE_FACTOR)) / math.log(_SLOPE_FACTOR)
        return at + slope * math.log(shown / rate)

    def _shown_at(self, rate: float) -> float:
        whole = np.sort(self.whole)
        settling = np.sort(self.settling)
        after = np.arange(1, len(whole) + 1) / len(whole)
        before = np.searchsorted(settling, whole, side="right") / len(settling)
        enough = np.flatnonzero(after / before >= math.exp(-(self.batches - self.settled) * rate))
        return float(whole[enough[0]])
