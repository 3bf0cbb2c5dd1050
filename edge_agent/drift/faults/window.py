"""Windows of a sensor's readings: whether they pile up at an end, or hardly move."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.faults.away import FLAT, as_good_as_still
from edge_agent.drift.faults.params import PartParams
from edge_agent.drift.faults.state import Recent

WINDOW = 128
"""Readings after which a sensor's highest and lowest are looked at, at least."""
_ALL = 0.95


class Window(NamedTuple):
    """The highest of the window's readings and of their negatives, how often, since when, and of how many."""

    top: NDArray[np.float64]
    often: NDArray[np.float64]
    since_s: float
    filled: int


def taken_in(
    recent: Recent, x: NDArray[np.float64], lowest: NDArray[np.float64], highest: NDArray[np.float64], now_s: float
) -> Window:
    """The window with a batch taken in; NaN is passed over."""
    top = np.empty_like(recent.top)
    top[0] = highest
    np.negative(lowest, out=top[1])
    top += 0.0  # a zero's sign says nothing
    at_top, at_bottom = x == highest, x == lowest
    alone = np.count_nonzero(at_top) == len(highest) == np.count_nonzero(at_bottom)
    often = 1.0 if alone else np.array((np.add.reduce(at_top, axis=0), np.add.reduce(at_bottom, axis=0)))
    best = np.fmax(recent.top, top)
    count = recent.often * (recent.top == best) + often * (top == best)
    return Window(best, count, recent.window_s if recent.filled else now_s, recent.filled + len(x))


def begun_anew(window: Window) -> Window:
    """The one that follows a full one."""
    return Window(np.full(window.top.shape, -np.inf), np.zeros(window.top.shape), 0.0, 0)


def is_odd(part: PartParams, window: Window) -> bool:
    """Whether a full window piles up at an end, or is much narrower than any of the reference."""
    if np.count_nonzero(window.often > part.pile_doubt * window.filled) and np.count_nonzero(_piled(part, window)):
        return True
    return bool(((window.top[0] + window.top[1]) * FLAT < part.arrays["span"]).any())


def are_odd(part: PartParams, top: NDArray[np.float64], often: NDArray[np.float64], filled: int) -> list[bool]:
    """:func:`is_odd` of w windows of equally many readings.

    Args:
        top, often: (w, 2, c) as of :class:`Window`.
    """
    doubtful = np.count_nonzero(often > part.pile_doubt * filled)
    if doubtful or np.count_nonzero((top[:, 0] + top[:, 1]) * FLAT < part.arrays["span"]):
        return [is_odd(part, Window(*one, 0.0, filled)) for one in zip(top, often, strict=True)]
    return [False] * len(top)


def by_window(part: PartParams, window: Window) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """What a full window shows: (2, c) piled up at its highest, lowest; (c,) as good as still."""
    nothing = np.zeros(window.top.shape, np.bool_)
    if window.filled < WINDOW:
        return nothing, nothing[0]
    piled = _piled(part, window)
    piled &= window.often < _ALL * window.filled  # else it stands still
    return piled, as_good_as_still(part, -window.top[1], window.top[0])


def _piled(part: PartParams, window: Window) -> NDArray[np.bool_]:
    """(2, c) whether the highest, lowest of a full window came more often than they may."""
    piled: NDArray[np.bool_] = window.often > part.pile_limit * window.filled
    piled |= (window.often > part.pile_doubt * window.filled) & (window.top < part.pile_inside)
    return piled
