"""The last batches in short: 8 to 15 one by one, and before them 12 times eight averaged."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

SINGLE = 8
TOGETHER = 8
AVERAGED = 12

Row = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class History:
    """Rows of one length, oldest first; pushing one copies references only.

    Attributes:
        width: values a row.
        averaged: means of eight batches each.
        single: batches.
    """

    width: int
    averaged: tuple[Row, ...] = ()
    single: tuple[Row, ...] = ()

    def pushed(self, *rows: Row) -> "History":
        """With some more, oldest first, as if they came one by one; the oldest are averaged, then forgotten."""
        single = (*self.single, *rows)
        blocks = max(0, len(single) // TOGETHER - SINGLE // TOGETHER)
        if not blocks:
            return History(self.width, self.averaged, single)
        old = np.array(single[: blocks * TOGETHER]).reshape(blocks, TOGETHER, self.width)
        means = np.asarray(np.mean(old, axis=1), np.float32)
        return History(self.width, (*self.averaged, *means)[-AVERAGED:], single[blocks * TOGETHER :])

    def rows(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Newest first: (r, length) rows, and (r,) how many batches each stands for."""
        rows = [*self.averaged, *self.single][::-1]
        weights = [float(TOGETHER)] * len(self.averaged) + [1.0] * len(self.single)
        return np.array(rows, np.float32), np.array(weights[::-1], np.float32)

    def to_arrays(self) -> dict[str, NDArray[np.float32]]:
        """Fixed size: unused rows are NaN."""
        return {
            "averaged": _filled(self.averaged, AVERAGED, self.width),
            "single": _filled(self.single, SINGLE + TOGETHER - 1, self.width),
        }

    @classmethod
    def from_arrays(cls, averaged: NDArray[np.float32], single: NDArray[np.float32]) -> Self:
        """From :meth:`to_arrays`."""
        return cls(averaged.shape[1], _used(averaged), _used(single))


def _filled(rows: tuple[Row, ...], count: int, length: int) -> NDArray[np.float32]:
    full = np.full((count, length), np.nan, np.float32)
    if rows:
        full[: len(rows)] = rows
    return full


def _used(full: NDArray[np.float32]) -> tuple[Row, ...]:
    return tuple(row.copy() for row in full if not np.isnan(row[0]))
