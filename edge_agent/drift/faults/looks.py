"""What many looks at some sensors show, told for all of them by the same few operations."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.faults.params import PartParams
from edge_agent.drift.faults.window import Window


class Looks(NamedTuple):
    """What k looks, of so many readings each, show of c sensors.

    Attributes:
        x: (k, readings, c) as they came, where those are floats.
        times_s: (k, readings).
        same: (k, readings, c) whether each equals the one before it; None: none does.
        equal: (k, c) how many do.
        top: (k, 2, c) the highest, and the highest of the negatives.
        often: (k, 2, c) how often each came.
        zero: k; whether a sensor reads 0 that never does.
        outside: (k, c) whether a reading lies where it has to be looked at, or is none.
        doubtful: k; whether one of a look does, or is 0.
    """

    x: NDArray[Any]
    times_s: NDArray[np.float64]
    same: NDArray[np.bool_] | None
    equal: NDArray[np.int64]
    top: NDArray[np.float64]
    often: NDArray[np.float64]
    zero: list[bool]
    outside: NDArray[np.bool_]
    doubtful: list[bool]

    @classmethod
    def of(
        cls, part: PartParams, last: NDArray[np.float64], x: NDArray[Any], times_s: NDArray[np.float64], k: int
    ) -> "Looks":
        """From (k x readings, c) readings; ``last``: (c,) those before them."""
        looks = x.reshape(k, -1, x.shape[1])
        same = np.empty(x.shape, np.bool_)
        np.equal(x[0], last, out=same[0])
        np.equal(x[1:], x[:-1], out=same[1:])
        some = bool(np.count_nonzero(same))
        shaped = same.reshape(looks.shape)
        equal = np.add.reduce(shaped, axis=1) if some else np.zeros((k, x.shape[1]), np.int64)
        highest, lowest = _folded(np.maximum, looks), _folded(np.minimum, looks)
        top, often = np.empty((2, k, 2, x.shape[1]))
        top[:, 0] = highest
        np.negative(lowest, out=top[:, 1])
        top += 0.0  # a zero's sign says nothing
        for side, value in enumerate((highest, lowest)):
            at = looks == value[:, None]
            if np.count_nonzero(at) == value.size:
                often[:, side] = 1.0
            else:
                np.add.reduce(at, axis=1, out=often[:, side])
        zero = np.zeros(k, np.bool_)
        if part.zero is not None and np.count_nonzero(x == 0):
            zero = np.logical_or.reduce((looks == 0) & part.zero, axis=(1, 2))
        outside = ~((highest <= part.inner_high) & (lowest >= part.inner_low))  # what is no number is outside
        doubtful = zero | np.logical_or.reduce(outside, axis=1)
        same_or_none = shaped if some else None
        return cls(
            looks, times_s.reshape(k, -1), same_or_none, equal, top, often, zero.tolist(), outside, doubtful.tolist()
        )

    @property
    def size(self) -> int:
        """Readings a look."""
        return len(self.times_s[0])

    def run_on(
        self, part: PartParams, run: NDArray[np.float64], run_s: NDArray[np.float64], place: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """How many readings in a row equal the latest, and when the first of them was: after one more look."""
        times_s = self.times_s[place]
        if self.same is None or not np.count_nonzero(same := self.same[place]):
            return part.once, part.once * times_s[-1]
        tail = same[::-1].argmin(axis=0)
        whole = self.equal[place] == self.size
        return np.where(whole, run + self.size, tail + 1.0), np.where(whole, run_s, times_s[self.size - 1 - tail])

    def widened(self, window: Window, begin: int, end: int) -> Window:
        """With some looks taken in."""
        if begin == end:
            return window
        top, often = self.top[begin:end], self.often[begin:end]
        best = np.maximum(window.top, np.maximum.reduce(top, axis=0))
        count = np.add.reduce(often * (top == best), axis=0)
        count += window.often * (window.top == best)
        since_s = window.since_s if window.filled else float(self.times_s[begin, 0])
        return Window(best, count, since_s, window.filled + (end - begin) * self.size)

    def windows(self, begin: int, each: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(w, 2, c) highest and how often it came, of all whole windows of so many looks from ``begin`` on."""
        some = slice(begin, begin + (len(self.x) - begin) // each * each)
        shape = (-1, each, *self.top.shape[1:])
        top, often = self.top[some].reshape(shape), self.often[some].reshape(shape)
        best = np.maximum.reduce(top, axis=1)
        return best, np.add.reduce(often * (top == best[:, None]), axis=1)


def _folded(which: Callable[..., Any], looks: NDArray[Any]) -> NDArray[Any]:
    """(k, c) the largest, the smallest of (k, readings, c): halves against halves, in long rows, which takes two thirds
    of what ``reduce`` takes down short ones."""
    count = looks.shape[1]
    while count > 1:
        half = count // 2
        folded = which(looks[:, :half], looks[:, half : 2 * half])
        if count % 2:
            which(folded[:, 0], looks[:, -1], out=folded[:, 0])
        looks, count = folded, half
    return looks[:, 0]
