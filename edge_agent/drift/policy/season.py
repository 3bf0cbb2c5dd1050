"""Baselines that follow the hour, the day or a plant's own period: what is usual now, not what is usual on average."""

import math
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import DataError

HOUR_OF_DAY = (86_400.0, 24)
DAY_OF_WEEK = (604_800.0, 7)
BINS_CAP = 168
KNOWN_BATCHES = 8
"""Batches in a bin before it is used: with fewer its mean is noise."""
MEMORY_BATCHES = 200
"""A bin forgets what is older than about so many batches."""
EPOCH_DAY_OFFSET_S = 345_600.0
"""From 1970-01-01, a Thursday, to the next Monday."""


@dataclass(frozen=True)
class SeasonParams:
    """A period in parts.

    Args:
        period_s: its length, > 0.
        bins: parts, 1 to 168.
        offset_s: where the first part begins, from 1970-01-01 00:00 UTC.
    """

    period_s: float
    bins: int
    offset_s: float = 0.0

    def __post_init__(self) -> None:
        """Refuse a season that is none, by name."""
        if not (math.isfinite(self.period_s) and self.period_s > 0):
            raise DataError(f"season: period_s = {self.period_s} is not positive")
        if not 1 <= self.bins <= BINS_CAP:
            raise DataError(f"season: bins = {self.bins}, it must be 1 to {BINS_CAP}")
        if not math.isfinite(self.offset_s):
            raise DataError(f"season: offset_s = {self.offset_s} is not finite")

    def bins_of(self, times_s: NDArray[np.float64]) -> NDArray[np.int64]:
        """(n,) the part in which each time lies; a time that is not finite lies in the first."""
        shifted = np.where(np.isfinite(times_s), times_s - self.offset_s, 0.0)
        part = np.floor(np.mod(shifted, self.period_s) / self.period_s * self.bins)
        return np.asarray(np.minimum(part, self.bins - 1), np.int64)


@dataclass(frozen=True)
class SeasonState:
    """The usual level in each part.

    Args:
        batches: (bins,) float64, how many each mean is of, at most ``MEMORY_BATCHES``.
        means: (bins,) float64.
    """

    batches: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    means: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def start(cls, params: SeasonParams) -> Self:
        """Nothing is known yet."""
        return cls(np.zeros(params.bins), np.zeros(params.bins))

    def to_arrays(self) -> dict[str, NDArray[np.float64]]:
        """Both columns."""
        return {"batches": self.batches, "means": self.means}

    @classmethod
    def from_arrays(cls, params: SeasonParams, arrays: dict[str, NDArray[np.float64]]) -> Self:
        """From :meth:`to_arrays`.

        Raises:
            DataError: of another season.
        """
        state = cls(arrays.get("batches", np.zeros(0)), arrays.get("means", np.zeros(0)))
        if state.batches.shape != (params.bins,) or state.means.shape != (params.bins,):
            raise DataError("the stored seasonal baseline is of another season")
        return state


def usual(params: SeasonParams, state: SeasonState, times_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far above the level of all parts the level usually is at these times.

    Only the shape of the season counts: a level that rises in all parts alike is no season, and stays to be seen.

    Args:
        times_s: (n,) seconds since 1970, UTC.

    Returns:
        (n,) float64, in the unit of the values learned; 0 where the part, or more than half of all, is not known yet.

    Cost: O(n + bins).
    """
    if not in_force(params, state):
        return np.zeros(len(times_s))
    known = state.batches >= KNOWN_BATCHES
    level = float(state.means[known].mean())
    excess: NDArray[np.float64] = np.where(known, state.means - level, 0.0)[params.bins_of(times_s)]
    return excess


def in_force(params: SeasonParams, state: SeasonState) -> int:
    """How many parts are known, once more than half are; 0 before: then nothing is taken off yet."""
    known = int((state.batches >= KNOWN_BATCHES).sum())
    return known if 2 * known > params.bins else 0


def is_known(params: SeasonParams, state: SeasonState, times_s: NDArray[np.float64]) -> bool:
    """Whether the part in which a batch lies has been learned."""
    return bool(state.batches[_part_of(params, times_s)] >= KNOWN_BATCHES)


def learn(
    params: SeasonParams, state: SeasonState, times_s: NDArray[np.float64], values: NDArray[np.float64]
) -> SeasonState:
    """Take a batch into the means; once a part is known, the caller leaves out what was judged while anything warned.

    A batch's part is that of its middle row. Values that are not finite are left out.

    Args:
        times_s, values: (n,) of one batch, n >= 0.

    Cost: O(n + bins).
    """
    fit = np.isfinite(values)
    if not fit.any():
        return state
    bin_ = _part_of(params, times_s)
    batches, means = state.batches.copy(), state.means.copy()
    batches[bin_] = min(batches[bin_] + 1, MEMORY_BATCHES)
    means[bin_] += (float(values[fit].mean()) - means[bin_]) / batches[bin_]
    return replace(state, batches=batches, means=means)


def _part_of(params: SeasonParams, times_s: NDArray[np.float64]) -> int:
    return int(params.bins_of(times_s)[len(times_s) // 2])
