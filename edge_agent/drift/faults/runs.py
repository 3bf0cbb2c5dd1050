"""Sensors that stand still: too many equal readings in a row."""

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.faults.params import PartParams


def run_limits(part: PartParams, held: NDArray[np.float64], sensors: NDArray[np.int64]) -> NDArray[np.float64]:
    """How often in a row the values ``held`` (..., k) of some sensors (k,) may be read."""
    limit = np.broadcast_to(part.arrays["run_limit"][sensors], held.shape).copy()
    values, own = part.arrays["special"], part.arrays["special_limit"]
    for place in range(len(values)):
        known = held == values[place, sensors]
        limit = np.where(known, np.maximum(limit, own[place, sensors]), limit)
    return limit


def stuck_readings(
    part: PartParams,
    readings: NDArray[np.float64],
    same: NDArray[np.bool_],
    before: NDArray[np.float64],
    patience: NDArray[np.float64],
    sensors: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """(m, k) whether a reading belongs to a run that is too long.

    Args:
        readings: (m, k) of the sensors looked at.
        same: (m, k) whether each equals the one before it.
        before: (k,) the run's length so far.
        patience: (k,) factor on the limits.
        sensors: (k,) their numbers.

    Cost: O(m k).
    """
    rows = np.arange(len(readings))[:, None]
    start = np.maximum.accumulate(np.where(same, -1, rows), axis=0)
    length = np.where(start < 0, rows + 1 + before, rows - start + 1)
    long = length >= run_limits(part, readings, sensors) * patience
    reached = np.zeros((len(readings) + 1, len(sensors)), np.bool_)
    row, column = np.nonzero(long)
    reached[start[row, column] + 1, column] = True
    found: NDArray[np.bool_] = np.take_along_axis(reached, start + 1, axis=0)
    return found
