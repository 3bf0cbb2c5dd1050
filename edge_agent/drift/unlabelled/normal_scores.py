"""Values to normal scores: what a standard normal value of the same rank in the reference would be.

Ranks are read from a table of equally wide cells between the reference's ends, with straight lines inside a cell: ten
array operations for any number of rows and channels, where a search would take a loop. A value beyond the ends scores
up to 4 deviations, whatever it is, so one wild reading cannot rule a batch.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

KNOTS = 67
SCORE_CAP = 4.0
_CELLS = 1024
_QUANTILES = KNOTS - 2
_FEW_VALUES = 64
_ROWS_A_LINE = 32
_OUTERMOST = 3.5
_SAME = 1e-3  # of a constant's size: a change that counts as a whole cap
_LEAST_DEVIATION = 0.05
_NORMAL = NormalDist()


@dataclass(frozen=True)
class ScoreTable:
    """Score tables of c channels.

    Attributes:
        values: (c, 67) float64, rising in each row: knots in the channel's own unit.
        scores: (c, 67) float32, the score at each knot, in [-4, 4].
    """

    values: NDArray[np.float64]
    scores: NDArray[np.float32]

    @classmethod
    def of(cls, columns: NDArray[Any]) -> "ScoreTable":
        """From (n, c) reference columns; what is not finite is left out, and a column without values is constant 0.

        Scores have mean 0 and deviation 1 in the reference; ties get their middle rank; a constant scores 0 and what
        differs from it by a thousandth of its size 4.

        Cost: O(n log n) a channel.
        """
        pairs = [_knots(column[np.isfinite(column)].astype(np.float64)) for column in columns.T]
        values = np.array([value for value, _ in pairs]).reshape(-1, KNOTS)
        scores = np.array([score for _, score in pairs], np.float32).reshape(-1, KNOTS)
        return cls(values, scores)

    @cached_property
    def _cells(self) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float32], NDArray[np.float32]]:
        low, high = self.values[:, 0], self.values[:, -1]
        grid = np.linspace(low, high, _CELLS + 1, axis=1)
        found = [np.interp(*row) for row in zip(grid, self.values, self.scores, strict=True)]
        nodes = np.array(found, np.float32).reshape(-1, _CELLS + 1)
        slopes = np.diff(nodes, axis=1, append=nodes[:, -1:])
        per_unit = _CELLS / (high - low)
        return np.tile(low, _ROWS_A_LINE), np.tile(per_unit, _ROWS_A_LINE), nodes.ravel(), slopes.ravel()

    @cached_property
    def _offsets(self) -> NDArray[np.int64]:
        return np.tile(np.arange(len(self.values)) * (_CELLS + 1), _ROWS_A_LINE)

    def __call__(self, columns: NDArray[Any]) -> NDArray[np.float32]:
        """Scores of (n, c) finite values, (n, c) float32.

        Cost: O(n c).
        """
        low, per_unit, nodes, slopes = self._cells
        lines = _side_by_side(columns)
        wide = slice(lines.shape[1])
        place = lines - low[wide]
        place *= per_unit[wide]
        np.clip(place, 0.0, float(_CELLS), out=place)
        cell = place.astype(np.int64)
        place -= cell
        cell += self._offsets[wide]
        scores = slopes.take(cell, mode="clip")  # a value that is not a number has no cell, and must not fail here
        scores *= place
        scores += nodes.take(cell, mode="clip")
        return scores.reshape(columns.shape)


def _side_by_side(columns: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in longer rows, where many are as wide as few: an operation has its price a row."""
    rows, width = columns.shape
    many = math.gcd(rows, _ROWS_A_LINE) if columns.flags.c_contiguous else 1
    return columns.reshape(rows // many, width * many) if rows else columns


def _knots(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) < 2 or distinct[-1] - distinct[0] <= 1e-9 * np.abs(distinct).max():
        return _constant(float(distinct[len(distinct) // 2]) if len(distinct) else 0.0)
    if len(distinct) <= _FEW_VALUES:
        middle = (np.cumsum(counts) - counts / 2) / len(values)
        knots, scores = distinct, np.array([_NORMAL.inv_cdf(share) for share in middle])
    else:
        knots, scores = _quantiles(values)
    mean, deviation = _moments(np.interp(values, knots, scores))
    scores = np.clip((scores - mean) / deviation, -SCORE_CAP, SCORE_CAP)
    return _padded(*_with_ends(knots, scores))


def _quantiles(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    outermost = min(_OUTERMOST, _NORMAL.inv_cdf(1 - 0.5 / len(values)))
    wanted = np.linspace(-outermost, outermost, _QUANTILES)
    knots = np.quantile(values, [_NORMAL.cdf(score) for score in wanted])
    distinct, place = np.unique(knots, return_inverse=True)
    return distinct, np.bincount(place, wanted) / np.bincount(place)


def _moments(scores: NDArray[np.float64]) -> tuple[float, float]:
    return float(scores.mean()), max(_LEAST_DEVIATION, float(scores.std()))


def _constant(value: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    width = _SAME * abs(value) or _SAME
    return _padded(np.array([value - width, value, value + width]), np.array([-SCORE_CAP, 0.0, SCORE_CAP]))


def _with_ends(
    knots: NDArray[np.float64], scores: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Beyond the ends the score goes on to the cap over half of the way from the middle to the end."""
    middle = knots[np.argmin(np.abs(scores))]
    span = knots[-1] - knots[0]
    below, above = (max(0.5 * reach, 0.15 * span) for reach in (middle - knots[0], knots[-1] - middle))
    return (
        np.concatenate([[knots[0] - below], knots, [knots[-1] + above]]),
        np.concatenate([[-SCORE_CAP], scores, [SCORE_CAP]]),
    )


def _padded(knots: NDArray[np.float64], scores: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    missing = KNOTS - len(knots)
    return np.pad(knots, (0, missing), mode="edge"), np.pad(scores, (0, missing), mode="edge")
