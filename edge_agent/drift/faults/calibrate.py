"""From a reference to what its sensors may do."""

import math

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.faults.channels import Block, channels_of
from edge_agent.drift.faults.params import ARRAYS, PILE_WINDOW, SCALE_FACTOR, SPECIALS, FaultParams
from edge_agent.drift.reference import Reference
from edge_agent.errors import DataError
from edge_agent.wire.manifest import Manifest

LEAST_ROWS = 32
"""Readings of a sensor below which nothing but physical limits and non-finite numbers is looked at."""
RANGE_FACTOR = 8.0
"""A reading is none from so many times the reference's own largest distance from its median on. Measured on gas batches
2-6 against batch 1: 13 of the 17 broken rows of batch 2 lie beyond, one other row of 4,244."""
RUN_LEAST = 12
"""Equal readings in a row that are never taken for a fault below."""
RUN_CHANCE = 1e-9
"""Of a longer run, were repeats independent at the rate that the reference shows (its upper limit)."""
RUN_FACTOR = 3.0
"""And so many times the longest run of the reference."""
UNORDERED_FACTOR = 8.0
"""Where the reference's order says nothing, how long a coarse sensor holds a value is not known from it."""
HELD = 0.9
"""Where fewer values than this share of the readings are different, a sensor may hold a value."""
PILE_STEP = 32
PILE_LEAST = 5
SHORT = 64
STEADY = 2.5
"""A sensor whose windows of ``PILE_WINDOW`` readings span more than so many times the least one is not steady."""
STEADY_WINDOWS = 16
_FEW_VALUES = 16


def calibrate(reference: Reference, manifest: Manifest) -> FaultParams:
    """What the sensors of a bundle may do, by its reference.

    Args:
        reference: in the order of its times; finite features.
        manifest: of the bundle: its inputs, and the features' units and physical limits.

    Raises:
        DataError: the reference has no rows.

    Cost: O(n f log n).
    """
    features = np.asarray(reference.observed.features, np.float64)
    if len(features) == 0:
        raise DataError("faults: the reference has no rows", "give held-out data")
    channels = channels_of(manifest, features.shape[1])
    columns: dict[str, list[NDArray[np.float64]]] = {name: [] for name in ARRAYS}
    for block in channels.blocks:
        readings = block.readings_of(features)
        breaks = _breaks(reference.segments, block)
        for place in range(block.channels):
            for name, value in _sensor(np.ascontiguousarray(readings[:, place]), breaks).items():
                columns[name].append(np.asarray(value, np.float64))
    if not channels.names:
        return FaultParams(channels, **_of_no_sensor(), rows=len(features))
    arrays = {name: np.stack(column, axis=-1) for name, column in columns.items()}
    return FaultParams(channels, **arrays, rows=len(features))


def _of_no_sensor() -> dict[str, NDArray[np.float64]]:
    return {name: np.zeros((*np.shape(_NOTHING_KNOWN[name]), 0)) for name in ARRAYS}


def _breaks(segments: NDArray[np.int64], block: Block) -> NDArray[np.bool_]:
    """(m - 1,) whether two readings in a row do not follow each other in time."""
    starts = np.zeros((len(segments), block.readings), np.bool_)
    starts[:, 0] = block.readings > 1
    starts[1:, 0] |= np.diff(segments) != 0
    return starts.reshape(-1)[1:]


def _sensor(x: NDArray[np.float64], breaks: NDArray[np.bool_]) -> dict[str, float | list[float]]:
    """All arrays' entries for one sensor's readings."""
    found: dict[str, float | list[float]] = dict(_NOTHING_KNOWN)
    low, high = float(x.min()), float(x.max())
    found |= {"low": low, "high": high, "mean_low": low, "mean_high": high, "step": high - low}
    if len(x) < LEAST_ROWS or low == high:
        return found
    values, counts = np.unique(x, return_counts=True)
    found |= _limits(x, low, high, breaks)
    found |= _runs(x, values, counts, breaks)
    if len(values) <= _FEW_VALUES:
        return found
    if not (_unordered(x, breaks) and len(values) < HELD * len(x)):
        found |= _piles(x)
    continuous = len(values) >= len(x) / 2
    found["zero"] = float(continuous and not (x == 0).any() and len(x) >= 3 * LEAST_ROWS)
    if not _counts_up(x, breaks):
        found |= _motion(x, breaks)
    return found


_NOTHING_KNOWN: dict[str, float | list[float]] = {
    **dict.fromkeys(ARRAYS, 0.0),
    "limit_low": -math.inf,
    "limit_high": math.inf,
    "run_limit": math.inf,
    "special": [0.0] * SPECIALS,
    "special_limit": [math.inf] * SPECIALS,
    "pile_limit": [1.0, 1.0],
}


def _limits(x: NDArray[np.float64], low: float, high: float, breaks: NDArray[np.bool_]) -> dict[str, float]:
    """Far outside: ``RANGE_FACTOR`` times the farthest from the median, and no scale that ageing could bring."""
    middle = float(np.median(x))
    least = (high - low) / RANGE_FACTOR
    below = middle - RANGE_FACTOR * max(middle - low, least)
    above = middle + RANGE_FACTOR * max(high - middle, least)
    below = min(below, low / SCALE_FACTOR if low > 0 else low * SCALE_FACTOR)
    above = max(above, high * SCALE_FACTOR if high > 0 else high / SCALE_FACTOR)
    if _counts_up(x, breaks):
        rises = x[-1] > x[0]
        return {"limit_low": below if rises else -math.inf, "limit_high": math.inf if rises else above}
    return {"limit_low": below, "limit_high": above}


def _counts_up(x: NDArray[np.float64], breaks: NDArray[np.bool_]) -> bool:
    """Whether it is a counter or a date: it goes one way, and will go on."""
    steps = np.diff(x)[~breaks]
    if len(steps) == 0:
        return False
    return bool(max((steps >= 0).mean(), (steps <= 0).mean()) >= 0.99 and np.abs(steps).max() < (x.max() - x.min()) / 2)


def _runs(
    x: NDArray[np.float64], values: NDArray[np.float64], counts: NDArray[np.int64], breaks: NDArray[np.bool_]
) -> dict[str, float | list[float]]:
    """How many equal readings in a row are too many, for any value and for those that it may hold."""
    changes = np.flatnonzero((np.diff(x) != 0) | breaks) + 1
    starts = np.concatenate([[0], changes])
    lengths = np.diff(np.concatenate([starts, [len(x)]]))
    held = x[starts]
    special = np.array([values[0], values[-1], values[counts.argmax()]])
    ordinary = ~np.isin(held, special)
    factor = UNORDERED_FACTOR if _unordered(x, breaks) and len(values) < HELD * len(x) else 1.0
    limit = factor * _run_limit(lengths[ordinary], len(x))
    own = [factor * _run_limit(lengths[held == value], len(x)) for value in special]
    return {
        "run_limit": limit if len(values) > 2 else math.inf,
        "special": special.tolist(),
        "special_limit": [max(limit, one) for one in own] if len(values) > 2 else [math.inf] * SPECIALS,
    }


def _run_limit(lengths: NDArray[np.int64], rows: int) -> float:
    """From the runs' lengths. One run alone that is ten times all others is a sensor that stood still in the reference.

    Infinite where runs are so long that the reference holds only a few of them.
    """
    ordered = np.sort(lengths)
    if len(ordered) == 0:
        return float(RUN_LEAST)
    if len(ordered) > LEAST_ROWS and ordered[-1] > 10 * ordered[-2]:
        ordered = ordered[:-1]
    longest, readings = int(ordered[-1]), int(ordered.sum())
    repeats = (readings - len(ordered) + 3) / (readings + 4)
    limit = max(RUN_LEAST, RUN_FACTOR * longest, math.log(RUN_CHANCE) / math.log(repeats))
    return math.ceil(limit) if longest <= max(RUN_LEAST, rows / 16) else math.inf


def _unordered(x: NDArray[np.float64], breaks: NDArray[np.bool_]) -> bool:
    """Whether neighbours are no more alike than any two readings: shuffled rows, or a sensor without memory."""
    centred = x - x.mean()
    scale = float((centred**2).mean())
    pairs = (centred[1:] * centred[:-1])[~breaks]
    return len(pairs) == 0 or abs(float(pairs.mean())) <= 3.0 * scale / math.sqrt(len(pairs))


def _piles(x: NDArray[np.float64]) -> dict[str, float | list[float]]:
    """How often a window's highest and lowest may come in it."""
    size = min(PILE_WINDOW, len(x))
    windows = np.lib.stride_tricks.sliding_window_view(x, size)[::PILE_STEP]
    limits = []
    for extreme in (windows.max(axis=1), windows.min(axis=1)):
        most = int((windows == extreme[:, None]).sum(axis=1).max())
        share = max(PILE_LEAST, 2 * most + 3) / size
        limits.append(share if share < 0.5 and size >= LEAST_ROWS else 1.0)
    return {"pile_limit": limits}


def _motion(x: NDArray[np.float64], breaks: NDArray[np.bool_]) -> dict[str, float]:
    """How fast it changes, and what short stretches look like."""
    steps = np.abs(np.diff(x))[~breaks]
    short = np.lib.stride_tricks.sliding_window_view(x, min(SHORT, len(x)))[:: SHORT // 4]
    means, deviations = short.mean(axis=1), short.std(axis=1)
    long = np.lib.stride_tricks.sliding_window_view(x, min(PILE_WINDOW, len(x)))[::PILE_STEP]
    spans = long.max(axis=1) - long.min(axis=1)
    steady = len(spans) >= STEADY_WINDOWS and spans.max() <= STEADY * spans.min()
    return {
        "unit": 1.0,
        "step": float(steps.max()) if len(steps) else float(x.max() - x.min()),
        "mean_low": float(means.min()),
        "mean_high": float(means.max()),
        "deviation_low": float(deviations.min()),
        "deviation_high": float(deviations.max()),
        "span": float(spans.min()) if steady else 0.0,
    }
