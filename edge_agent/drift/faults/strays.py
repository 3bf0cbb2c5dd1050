"""Sensors that leave their range for a few readings: noise does so every few hundred samples."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.faults.away import LARGEST, LIMITS, passing
from edge_agent.drift.faults.looks import Looks
from edge_agent.drift.faults.opening import LEAST_SENTINEL, is_sentinel, went_on_sound
from edge_agent.drift.faults.params import PartParams
from edge_agent.drift.faults.state import Standing


class Stray(NamedTuple):
    """A sensor that leaves its range in a look, and nothing has to be looked for.

    Attributes:
        row: of the first reading outside.
        before: the reading before it; NaN where that is of the look before.
        since_s: when the first outside was read.
        value: what it was.
    """

    row: int
    before: float
    since_s: float
    value: float


Strays = dict[int, dict[int, Stray]]
"""By look, by sensor."""


def strays_of(part: PartParams, looks: Looks) -> Strays:
    """Those of some looks whose limits are the reference's still.

    Cost: a few operations of O(readings) for each of them.
    """
    look, sensor = np.nonzero(looks.outside)
    if not len(look) or not float(looks.top.max()) < LARGEST:
        return {}
    x = looks.x[look, :, sensor].astype(np.float64)
    outside = (x < part.inner_low[sensor, None]) | (x > part.inner_high[sensor, None])
    first = outside.argmax(axis=1)
    sound = passing(part, x, outside, sensor)
    highest, lowest = looks.top[look, 0, sensor], -looks.top[look, 1, sensor]
    sound &= (lowest > part.limit_low[sensor]) & (highest < part.limit_high[sensor])
    if np.count_nonzero(np.maximum(highest, -lowest) >= LEAST_SENTINEL):
        sound &= ~is_sentinel(x.ravel()).reshape(x.shape).any(axis=1)
    found: Strays = {}
    for place in np.flatnonzero(sound).tolist():
        row = int(first[place])
        before = float(x[place, row - 1]) if row else np.nan
        since_s = float(looks.times_s[look[place], row])
        found.setdefault(int(look[place]), {})[int(sensor[place])] = Stray(row, before, since_s, float(x[place, row]))
    return found


def let_pass(
    part: PartParams,
    standing: Standing,
    strays: dict[int, Stray],
    last: NDArray[np.float64],
    times_s: NDArray[np.float64],
) -> Standing:
    """After a look of which all that is to be told are these strays: they are not looked at again in their window.

    Args:
        last: (c,) the readings before the look.
        times_s: of its readings.
    """
    changed = {name: getattr(standing, name).copy() for name in ("away_before", "away_s", "away_value", *LIMITS)}
    for sensor, stray in strays.items():
        before = stray.before if stray.row else last[sensor] if abs(last[sensor]) < LARGEST else np.nan
        changed["away_before"][sensor] = before
        changed["away_s"][sensor] = stray.since_s
        changed["away_value"][sensor] = stray.value
        changed["inner_low"][sensor] = part.limit_low[sensor]
        changed["inner_high"][sensor] = part.limit_high[sensor]
    return standing._replace(**changed, **went_on_sound(standing, times_s))
