"""What neighbours that resemble each other do to a window: how far its halves and its spreads go apart by chance."""

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.promise.blocks import dependence, long_mean_inflation

Floats = NDArray[np.float64]

ORDERED_ROWS = 8192
"""Rows in a row from which dependence is read, at most."""
_Z99 = 2.326
_MARGIN = 1.25
_UNSURE = 6.0
"""Over the root of the independent rows that a reference is worth: by how much of itself an inflation is widened, since
it is read from these few. Of AR(1) 0.9 and 500 rows 2 left 4 % of windows as `passing`, 6 none; of 0.95, 22 and 4 %. Of
the spreads along axes, 1,000 rows, 2 left 5 % of windows as `unlike`, 6 2 %."""


def inflations(signals: Floats, own: Floats) -> Floats:
    """(s + c,) how many times the variance of independent rows the mean of each squared signal and reading has, >= 1.

    Those of the signals are widened by how few rows tell them, whose axes fit these rows better than any others; those
    of the readings, which nothing was fitted to, are as they are.

    Args:
        signals: (n, s) of the reference's rows, in the order in which they were measured.
        own: (n, c) squared readings of the same.

    Cost: O((s + c) n log n).
    """
    along, alone = (np.array([dependence(one).inflation for one in squared.T]) for squared in (np.square(signals), own))
    return np.concatenate([_widened(along, len(signals)), alone])


def halves_limit(inverse: Floats, scaled: Floats, window: int) -> float:
    """Above what 1 % of windows have their halves apart (``judge.apart``), though nothing changes.

    Args:
        inverse: (h, h) in whose units a distance is.
        scaled: (n, h) standardised functions of the reference's rows, in the order in which they were measured.
        window: rows; slower changes, of the means of so many rows, move both halves alike and count for nothing.

    Returns: >= 0; 0 where the functions are the same in all rows.

    The squared distance is taken for a sum of independent chi-squares, along the axes along which the functions are
    not correlated, each with the variance of its own long mean, and that for a multiple of one with the same mean and
    variance (Satterthwaite 1946), whose quantile is that of Wilson and Hilferty (1931).

    Cost: O(h n log n + h^2 n).
    """
    whitened = (scaled - scaled.mean(axis=0)) @ np.linalg.cholesky(inverse)
    sizes, axes = np.linalg.eigh(whitened.T @ whitened / len(whitened))
    along = whitened @ axes
    parts = np.array_split(along, max(1, round(len(along) / window)))
    within = np.concatenate([part - part.mean(axis=0) for part in parts])
    worth = np.array([long_mean_inflation(column) for column in within.T])
    each = np.maximum(sizes, 0.0) * _widened(worth, len(scaled))
    if not each.any():
        return 0.0  # nothing varies
    freedom = float(each.sum() ** 2 / np.square(each).sum())
    beyond = (1.0 - 2.0 / (9.0 * freedom) + _Z99 * np.sqrt(2.0 / (9.0 * freedom))) ** 3
    return _MARGIN * float(each.mean() * beyond)


def _widened(found: Floats, rows: int) -> Floats:
    """Inflations with how little they are known; rows that are as good as independent stay so."""
    return np.where(found > 1.0, found * (1.0 + _UNSURE * np.sqrt(found / rows)), 1.0)
