"""Sensors that have left their range: whether a change of unit explains it, or whether they drifted."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.faults.params import MARGIN, SCALE_FACTOR, PartParams
from edge_agent.drift.faults.report import Kind
from edge_agent.drift.faults.state import Standing
from edge_agent.drift.faults.units import SIGN

ENOUGH = 64
"""Readings on which a change of unit is decided."""
HELD_FROM = 16
"""Readings from which on they are held back until it is: of fewer, most are noise that has just left the range. Counted
over looks, so that a stream is masked alike however many samples a look has."""
FAR = 1.0
"""Times the range of the reference: what lies so far outside of it is held back from the first reading on."""
ENOUGH_BY_SCALE, BY_MEAN = 128, 0.25
"""The same where few of them lie outside the range and their scale alone says it: a burst is over by then; and of their
mean square what their squared mean must be."""
OUTSIDE = 0.35
"""Share of them that must lie outside the reference's range: what lies inside may be true."""
EXPLAINED = 0.97
EXPLAINED_BY_ALL = 0.9
"""Share of the sensors that one change must explain where many have left their range at once."""
TOGETHER = 3
"""Sensors, of four times as many, whose units may change at once."""
STEP_ROOM = 1.2
MEAN_ROOM = 0.1
DEVIATION_ROOM = 1.25
TELLING = 0.5
"""A test tells something if what it accepts is narrower than so many times what the change of unit would move."""
TELLING_RATIO = 3.0
"""The same for deviations: the greatest accepted over the least."""
ABSURD = 100.0
"""No drift changes a scale so much."""
FLAT = 300.0
"""A window that spans so many times less than the least of the reference's is a sensor that stands still but for its
noise. Drift does much: where few classes come, gas sensors span 70 times less than in their reference (measured)."""

LARGEST = 1e100
"""Beyond it sums of squares are none."""


class Leaving(NamedTuple):
    """What is read of k sensors that are outside of their range, or have been of late.

    Attributes:
        sensors: (k,) their numbers.
        readings: (m, k), not finite where broken.
        last: (k,) their readings before these; NaN where they do not follow them in time.
        times_s: (m,).
        outside: (m, k) bool.
    """

    sensors: NDArray[np.int64]
    readings: NDArray[np.float64]
    last: NDArray[np.float64]
    times_s: NDArray[np.float64]
    outside: NDArray[np.bool_]


class Away(NamedTuple):
    """What became of the sensors that are away.

    Attributes:
        undecided: (c,) bool: a change of unit may explain it.
        suspect: (c,) bool: of these, the ones whose readings are held back until it is decided.
        first: (c,) the row of this batch from which on they are.
        unit: (c,) number of the change of unit that was recognised; -1: none.
        changed: the state's arrays of the same names.
    """

    undecided: NDArray[np.bool_]
    suspect: NDArray[np.bool_]
    first: NDArray[np.int64]
    unit: NDArray[np.int64]
    changed: dict[str, NDArray[np.float64]]


def look_away(
    part: PartParams,
    state: Standing,
    readings: NDArray[np.float64],
    before: NDArray[np.float64],
    times_s: NDArray[np.float64],
) -> Away:
    """Follow each sensor from its first reading outside its range on, until a change of unit explains it or none does.

    Args:
        readings: (m, c), not finite where broken.
        before: (m, c) the reading before each; NaN where it does not follow it in time.
        times_s: (m,).

    Cost: O(m c) and, for the sensors that are away, that for each change of unit (8 where no unit is known).
    """
    count = part.block.channels
    outside = (readings < state.inner_low) | (readings > state.inner_high)
    outside &= part.arrays["unit"] > 0
    suspect, unit = np.zeros(count, np.bool_), np.full(count, -1)
    chosen = np.flatnonzero((outside.any(axis=0) | (state.away > 0)) & (state.kind != int(Kind.UNIT)))
    if len(chosen) == 0:
        return Away(suspect, suspect, unit, unit, {})
    leaving = Leaving(chosen, readings[:, chosen], before[0, chosen], times_s, outside[:, chosen])
    short = strayed(part, state, leaving)
    if short is not None:
        return Away(suspect, suspect, unit, unit, {name: getattr(state, name) for name in _NAMES} | short)
    changed = {name: getattr(state, name).copy() for name in _NAMES}
    _fit(part, changed, leaving, *_count(changed, leaving, before[:, chosen]))
    explained, displaced = _explained(part, changed, chosen), _displaced(part, changed, chosen)
    far = ((readings < part.inner_low) | (readings > part.inner_high)).mean(axis=0) >= OUTSIDE
    far[chosen] |= (explained & displaced).any(axis=0)
    if far.sum() > max(1, min(TOGETHER, count // 4)):
        explained &= _by_all(part, explained & displaced)  # what else moves many sensors at once is the plant
    telling, like = _judge(part, changed, chosen)
    likely = explained & displaced & telling
    many_outside = changed["away_out"][chosen] >= OUTSIDE * changed["away"][chosen]
    decided = changed["away"][chosen] >= np.where(many_outside, ENOUGH, ENOUGH_BY_SCALE)
    told = decided & (likely & like).any(axis=0)
    first_that = part.changes.numbers[(explained & like).argmax(axis=0)]  # one of its own unit, else the least
    unit[chosen] = np.where(told, first_that, -1)
    undecided = np.zeros(count, np.bool_)
    undecided[chosen] = likely.any(axis=0) & ~decided
    early = _let_go(part, changed, chosen, undecided)
    first = np.where(state.away > 0, 0, outside.argmax(axis=0))
    return Away(undecided, undecided & (~early | _far(part, changed)), first, unit, changed)


LIMITS = ("inner_low", "inner_high")
_NAMES = (
    "away",
    "away_out",
    "away_fit",
    "away_sum",
    "away_squares",
    "away_before",
    "away_s",
    "away_value",
    *LIMITS,
)


def _by_all(part: PartParams, explained: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(changes, 1) whether one change, by a factor that no drift has, explains nearly all sensors that are looked at
    for one: the channels of a source were scaled anew, as from volts to millivolts."""
    scale = np.abs(part.changes.factor)
    absurd: NDArray[np.bool_] = np.maximum(scale, 1.0 / scale) >= ABSURD
    enough = EXPLAINED_BY_ALL * np.count_nonzero(part.arrays["unit"])
    absurd &= np.count_nonzero(explained, axis=1, keepdims=True) >= enough
    return absurd


def passing(
    part: PartParams, readings: NDArray[np.float64], outside: NDArray[np.bool_], sensors: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """(k,) whether sensors have left their range for so few readings that no change of unit can explain it.

    Args:
        readings, outside: (k, m); not finite where broken.
        sensors: (k,) their numbers.
    """
    counted = (np.arange(outside.shape[1]) >= outside.argmax(axis=1)[:, None]) & np.isfinite(readings)
    many = np.maximum(np.add.reduce(counted, axis=1), 1)
    few_outside = np.add.reduce(outside & counted, axis=1) < OUTSIDE * many
    known = np.where(counted, readings, 0.0)
    mean, square = np.add.reduce(known, axis=1) / many, np.add.reduce(np.square(known), axis=1) / many
    found: NDArray[np.bool_] = few_outside & (many >= HELD_FROM)
    found &= ~np.logical_or.reduce(_out_of_scale(part, mean, square, sensors), axis=0)
    return found


def strayed(part: PartParams, state: Standing, leaving: Leaving) -> dict[str, NDArray[np.float64]] | None:
    """What changes where all have left their range just now, and are passing.

    Returns: the state's arrays of these names; None: it is not so.
    """
    chosen, readings, outside = leaving.sensors, leaving.readings, leaving.outside
    if np.count_nonzero(state.away[chosen]):
        return None
    alike = passing(part, np.ascontiguousarray(readings.T), np.ascontiguousarray(outside.T), chosen)
    if np.count_nonzero(alike) < len(chosen):
        return None
    first, columns = outside.argmax(axis=0), np.arange(len(chosen))
    changed = {name: getattr(state, name).copy() for name in ("away_before", "away_s", "away_value", *LIMITS)}
    changed["away_before"][chosen] = np.where(first > 0, readings[first - 1, columns], leaving.last)
    changed["away_s"][chosen] = leaving.times_s[first]
    changed["away_value"][chosen] = readings[first, columns]
    changed["inner_low"][chosen] = part.limit_low[chosen]
    changed["inner_high"][chosen] = part.limit_high[chosen]
    return changed


def _count(
    changed: dict[str, NDArray[np.float64]], leaving: Leaving, before: NDArray[np.float64] | None = None
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Add the readings of sensors that are away to their sums.

    Args:
        before: (m, k) the reading before each; None: they follow each other.

    Returns: (k,) which are away just now; (m, k) which readings are counted.
    """
    chosen, x = leaving.sensors, leaving.readings
    new = changed["away"][chosen] == 0
    first = np.where(new, leaving.outside.argmax(axis=0), 0)
    counted = (np.arange(len(x))[:, None] >= first) & np.isfinite(x)
    began, column = chosen[new], np.flatnonzero(new)
    if before is None:
        before = np.concatenate((leaving.last[None], x[:-1]))
    changed["away_before"][began] = before[first[new], column]
    changed["away_s"][began] = leaving.times_s[first[new]]
    changed["away_value"][began] = x[first[new], column]
    counted_x = np.where(counted, x, 0.0)
    changed["away"][chosen] += np.add.reduce(counted, axis=0)
    changed["away_out"][chosen] += np.add.reduce(leaving.outside & counted, axis=0)
    changed["away_sum"][chosen] += np.add.reduce(counted_x, axis=0)
    changed["away_squares"][chosen] += np.add.reduce(np.square(counted_x), axis=0)
    return new, counted


def _fit(
    part: PartParams,
    changed: dict[str, NDArray[np.float64]],
    leaving: Leaving,
    new: NDArray[np.bool_],
    counted: NDArray[np.bool_],
) -> None:
    """Add how many of the counted readings each change of unit explains."""
    chosen = leaving.sensors
    since = int(np.logical_or.reduce(counted, axis=1).argmax())
    true = part.changes.true_of(leaving.readings[since:])
    low, high, step = part.arrays["low"][chosen], part.arrays["high"][chosen], part.arrays["step"][chosen]
    margin = MARGIN * (high - low)
    fit = ((true >= low - margin) & (true <= high + margin) & counted[since:]).sum(axis=1).astype(np.float64)
    jump = np.abs(part.changes.true_of(changed["away_value"][chosen]) - changed["away_before"][chosen])
    fit[:, new] -= np.where(jump[:, new] > STEP_ROOM * step[new], np.inf, 0.0)  # it does not go on where it was
    fit[~part.changes.able[:, chosen]] = -np.inf
    changed["away_fit"][:, chosen] += fit


def _judge(
    part: PartParams, changed: dict[str, NDArray[np.float64]], chosen: NDArray[np.int64]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(changes, k) whether the reference can tell a change of unit at all; and whether the readings look like one.

    A sensor that reads now this, now ten times as much, cannot be told to have changed its unit. One that is steady is
    known by its level or by its deviation, one that is slow by the reading before.
    """
    size = np.maximum(changed["away"][chosen], 1.0)
    mean = changed["away_sum"][chosen] / size
    deviation = np.sqrt(np.maximum(changed["away_squares"][chosen] / size - np.square(mean), 0.0))
    limits = {name: part.arrays[name][chosen] for name in _SHORT}
    room = MEAN_ROOM * (limits["mean_high"] - limits["mean_low"])
    low, high = limits["mean_low"] - room, limits["mean_high"] + room
    true_mean, scale = part.changes.true_of(mean), np.abs(part.changes.factor)
    least, most = limits["deviation_low"] / DEVIATION_ROOM, limits["deviation_high"] * DEVIATION_ROOM
    like = (true_mean >= low) & (true_mean <= high) & (deviation >= least * scale) & (deviation <= most * scale)
    moved = TELLING * np.abs(true_mean - mean)
    by_level = scale * (high - low) <= moved
    by_step = (scale * 2.0 * STEP_ROOM * limits["step"] <= moved) & np.isfinite(changed["away_before"][chosen])
    by_deviation = (most <= TELLING_RATIO * least) & (np.maximum(scale, 1.0 / scale) > TELLING_RATIO)
    most_square = np.maximum(np.square(low), np.square(high)) + np.square(most)
    by_far = (np.square(mean) + np.square(deviation) >= SCALE_FACTOR**2 * most_square) & (scale > TELLING_RATIO)
    by_far |= _of_scale(part, _out_of_scale(part, mean, changed["away_squares"][chosen] / size, chosen))
    absurd = np.maximum(scale, 1.0 / scale) >= ABSURD
    return by_level | by_step | by_deviation | by_far | absurd, like


def _far(part: PartParams, changed: dict[str, NDArray[np.float64]]) -> NDArray[np.bool_]:
    """(c,) bool: where readings that are followed lie far outside, on average."""
    low, high = part.arrays["low"], part.arrays["high"]
    mean = changed["away_sum"] / np.maximum(changed["away"], 1.0)
    room = FAR * (high - low)
    return np.asarray((mean < low - room) | (mean > high + room))


_SHORT = ("mean_low", "mean_high", "deviation_low", "deviation_high", "step")


def _explained(
    part: PartParams, changed: dict[str, NDArray[np.float64]], chosen: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """(changes, k) whether a change of unit explains the readings."""
    explained: NDArray[np.bool_] = changed["away_fit"][:, chosen] >= EXPLAINED * changed["away"][chosen]
    if len(chosen) > 1:
        explained[part.changes.numbers == SIGN] = False  # a sensor that is mounted anew turns more than one axis
    return explained


def _displaced(
    part: PartParams, changed: dict[str, NDArray[np.float64]], chosen: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """(changes, k) whether many readings lie outside, or all are of another scale than any of the reference's."""
    count = changed["away"][chosen]
    size = np.maximum(count, 1.0)
    scales = _out_of_scale(part, changed["away_sum"][chosen] / size, changed["away_squares"][chosen] / size, chosen)
    found: NDArray[np.bool_] = (changed["away_out"][chosen] >= OUTSIDE * count) | _of_scale(part, scales)
    return found


def _out_of_scale(
    part: PartParams, mean: NDArray[np.float64], square: NDArray[np.float64], chosen: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """(2, k) whether (k,) mean squares are so far above, below those of any of the reference's windows that no ageing
    explains it. Of a sensor that ranges over decades few readings leave the range when all are ten times as large.

    The more its windows differ in scale already, the more room there is for others. Where the mean says little of the
    square a few wild readings make it.
    """
    found: NDArray[np.bool_] = np.array([square >= part.square_high[chosen], square <= part.square_low[chosen]])
    if np.count_nonzero(found[0]):
        found[0] &= np.square(mean) >= BY_MEAN * square
    return found


def _of_scale(part: PartParams, scales: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(changes, k) whether a change goes the way in which (2, k) sensors are out of scale."""
    scale = np.abs(part.changes.factor)
    up, down = scale > TELLING_RATIO, scale < 1.0 / TELLING_RATIO
    return np.asarray((scales[0] & up) | (scales[1] & down))


def followed(part: PartParams, state: Standing, leaving: Leaving) -> dict[str, NDArray[np.float64]] | None:
    """What changes where some are away and no change of unit explains it, as :func:`look_away` has it.

    Returns: the state's arrays of these names; None: one may explain it, and readings are held back for it.
    """
    chosen, nobody = leaving.sensors, np.zeros(part.block.channels, np.bool_)
    changed = {name: getattr(state, name).copy() for name in _NAMES}
    new, counted = _count(changed, leaving)
    displaced = _displaced(part, changed, chosen)
    enough = changed["away"][chosen] >= HELD_FROM
    if np.count_nonzero(displaced) or np.count_nonzero(enough) < len(chosen):
        _fit(part, changed, leaving, new, counted)
        likely = _explained(part, changed, chosen) & displaced & (enough | _far(part, changed)[chosen])
        if np.count_nonzero(likely) and np.count_nonzero(likely & _judge(part, changed, chosen)[0]):
            return None
    _let_go(part, changed, chosen, nobody)
    return changed


def _let_go(
    part: PartParams,
    changed: dict[str, NDArray[np.float64]],
    chosen: NDArray[np.int64],
    undecided: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Those that are decided are not looked at again in this window; (c,) which are too few readings to be."""
    early: NDArray[np.bool_] = changed["away"] < HELD_FROM
    decided = chosen[~(undecided | early)[chosen]]
    for name in ("away", "away_out", "away_sum", "away_squares"):
        changed[name][decided] = 0.0
    changed["away_fit"][:, decided] = 0.0
    changed["inner_low"][decided] = part.limit_low[decided]
    changed["inner_high"][decided] = part.limit_high[decided]
    return early


def as_good_as_still(part: PartParams, low: NDArray[np.float64], high: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(c,) bool: of a window that spans far less than any of the reference, at a few sensors only.

    Args:
        low, high: (c,) of the window; not finite where nothing was read.
    """
    span = high - low
    still: NDArray[np.bool_] = (span > 0) & (span * FLAT < part.arrays["span"])
    if still.sum() > max(1, min(TOGETHER, len(span) // 4)):
        still[:] = False
    return still
