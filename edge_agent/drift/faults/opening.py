"""When a fault is told to begin and to end: some broken readings are masked only, many are a fault until they stop."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.faults.params import PartParams
from edge_agent.drift.faults.report import FaultReport, Kind
from edge_agent.drift.faults.state import Standing
from edge_agent.drift.faults.units import name_of

BEGINS = 3.0
"""Broken readings of late that are a fault; each fades by e in ``FADES``."""
FADES = 64.0
ENDS = 64.0
"""Sound readings in a row after which a fault is over."""
ENDS_BY_WINDOWS = 256.0
"""The same for faults that only a window of readings shows."""
PATIENCE_MOST = 8.0
STILL_AWAY = 0.2
_ALMOST = "as good as still"
SENTINELS = (-999.0, -9999.0, 999.0, 9999.0, 99999.0, -32768.0, 32767.0, 65535.0)
"""What loggers write for a reading that they do not have."""
_SENTINELS = np.array(SENTINELS)
LEAST_SENTINEL = min(map(abs, SENTINELS))
_STILL = -2.0


class Evidence(NamedTuple):
    """What a batch shows of c sensors in m readings.

    Attributes:
        readings, times_s: (m, c) as read, and (m,).
        broken: (m, c) bool, readings that are none by themselves.
        stuck: (m, c) bool, readings of a run that is too long.
        run, run_s: (c,) how many equal readings the batch began after, and when the first of them was.
        undecided: (c,) bool, a change of unit may explain it.
        suspect: (c,) bool, held back until it is decided.
        suspect_from: (c,) the row from which on they are.
        unit: (c,) the change of unit that was recognised; -1: none.
        unit_s, unit_value: (c,) since when, and the first reading.
        clipped, still: (c,) bool, by the window that ended now.
        top: (c,) the value that a clipped sensor piles up at.
        window_s: when that window began.
    """

    readings: NDArray[np.float64]
    times_s: NDArray[np.float64]
    broken: NDArray[np.bool_]
    stuck: NDArray[np.bool_]
    run: NDArray[np.float64]
    run_s: NDArray[np.float64]
    undecided: NDArray[np.bool_]
    suspect: NDArray[np.bool_]
    suspect_from: NDArray[np.int64]
    unit: NDArray[np.int64]
    unit_s: NDArray[np.float64]
    unit_value: NDArray[np.float64]
    clipped: NDArray[np.bool_]
    still: NDArray[np.bool_]
    top: NDArray[np.float64]
    window_s: float


class Settled(NamedTuple):
    """What follows: the state's new arrays, the broken readings and the reports (of sensors by their place)."""

    changed: dict[str, NDArray[np.float64]]
    mask: NDArray[np.bool_] | None
    reports: list[FaultReport]


def settle(part: PartParams, state: Standing, evidence: Evidence) -> Settled:
    """Begin faults, go on with them, end them.

    Cost: O(m c); where nothing is or was wrong that of a few operations.
    """
    if _is_nothing(state, evidence):
        return Settled(went_on_sound(state, evidence.times_s), None, [])
    changed = {name: getattr(state, name).copy() for name in _NAMES}
    begun = _begin(part, state, changed, evidence)
    shown = _shown(part, changed, evidence)
    count, some = len(shown), shown.any(axis=0)
    sound = np.where(some, shown[::-1].argmax(axis=0), count)  # readings since the last that shows it
    new = (changed["quiet"] == 0) | some
    first_sound = evidence.times_s[np.minimum(count - sound, count - 1)]
    changed["quiet_s"] = np.where(new & (sound > 0), first_sound, changed["quiet_s"])
    changed["quiet"] = np.where(some, 0.0, changed["quiet"]) + sound
    by_windows = (changed["kind"] == Kind.CLIPPED) | (changed["detail"] == _STILL)
    lasts = np.where(by_windows, ENDS_BY_WINDOWS, ENDS)
    over = (changed["kind"] != Kind.NONE) & (changed["quiet"] >= lasts)
    rows = np.arange(count)[:, None]
    masked = (rows >= np.where(begun, shown.argmax(axis=0), 0)) & (changed["kind"] != Kind.NONE)
    masked &= rows < np.where(over, count - (changed["quiet"] - lasts), count)
    mask = evidence.broken | evidence.stuck | masked | (evidence.suspect & (rows >= evidence.suspect_from))
    reports = [_report(state, int(sensor), float(evidence.times_s[-1])) for sensor in _replaced(state, changed)]
    reports += [_report_of(changed, int(sensor), None) for sensor in np.flatnonzero(begun)]
    reports += [_report_of(changed, int(n), float(changed["quiet_s"][n])) for n in np.flatnonzero(over)]
    _end(part, changed, over)
    return Settled(changed, mask if mask.any() else None, reports)


def _is_nothing(state: Standing, evidence: Evidence) -> bool:
    """Whether no reading shows a fault and none is open."""
    shows = (evidence.broken, evidence.stuck, evidence.suspect, evidence.unit >= 0, evidence.clipped, evidence.still)
    return not (any(map(np.count_nonzero, shows)) or np.count_nonzero(state.kind))


def went_on_sound(state: Standing, times_s: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """The state's arrays after (m,) readings that are all sound, where no fault is open."""
    return {
        "level": state.level * math.exp(-len(times_s) / FADES),
        "quiet": state.quiet + len(times_s),
        "quiet_s": np.where(state.quiet == 0, times_s[0], state.quiet_s),
    }


_NAMES = (
    "level",
    "first_s",
    "first_value",
    "kind",
    "since_s",
    "value",
    "detail",
    "quiet",
    "quiet_s",
    "patience",
)


def _begin(
    part: PartParams, state: Standing, changed: dict[str, NDArray[np.float64]], evidence: Evidence
) -> NDArray[np.bool_]:
    """(c,) bool: sensors at which a fault begins with this batch."""
    _count_broken(changed, evidence)
    free = changed["kind"] == Kind.NONE
    many = free & evidence.broken.any(axis=0) & (changed["level"] >= BEGINS)
    kinds = _kinds(changed["first_value"])
    many &= (kinds != Kind.RANGE) | (~evidence.undecided & (evidence.unit < 0))  # else a change of unit may explain it
    _open(changed, many, kinds, changed["first_s"], changed["first_value"])
    held = free & ~many & evidence.stuck.any(axis=0)
    first = evidence.stuck.argmax(axis=0)
    sensors = np.arange(len(held))
    value = evidence.readings[first, sensors]
    since = np.where(
        first == 0, np.where(evidence.run >= 1, evidence.run_s, evidence.times_s[0]), evidence.times_s[first]
    )
    outside = (value < part.inner_low) | (value > part.inner_high)
    _open(changed, held, np.where(outside & _is_none(value), Kind.DROPPED, Kind.STUCK), since, value)
    shown = free & ~many & ~held
    piled, still = shown & evidence.clipped, shown & evidence.still & ~evidence.clipped
    window_s = np.full(len(held), evidence.window_s)
    _open(changed, piled, np.full(len(held), Kind.CLIPPED), window_s, evidence.top)
    _open(changed, still, np.full(len(held), Kind.STUCK), window_s, evidence.readings[-1])
    changed["detail"][still] = _STILL
    unit = (evidence.unit >= 0) & (state.kind != Kind.UNIT)
    _open(changed, unit, np.full(len(held), Kind.UNIT), evidence.unit_s, evidence.unit_value)
    changed["detail"][unit] = evidence.unit[unit]
    begun: NDArray[np.bool_] = many | held | piled | still | unit
    return begun


def _count_broken(changed: dict[str, NDArray[np.float64]], evidence: Evidence) -> None:
    count = evidence.broken.sum(axis=0)
    faded = changed["level"] * math.exp(-len(evidence.readings) / FADES)
    new = (count > 0) & (faded < 0.5)
    first = evidence.broken.argmax(axis=0)[new]
    changed["first_s"][new] = evidence.times_s[first]
    changed["first_value"][new] = evidence.readings[first, np.flatnonzero(new)]
    changed["level"] = faded + count


def _open(
    changed: dict[str, NDArray[np.float64]],
    which: NDArray[np.bool_],
    kind: NDArray[np.int64],
    since_s: NDArray[np.float64],
    value: NDArray[np.float64],
) -> None:
    for name, array in (("kind", kind), ("since_s", since_s), ("value", value)):
        changed[name][which] = array[which]
    changed["detail"][which] = -1.0
    changed["quiet"][which] = 0.0


def _shown(part: PartParams, changed: dict[str, NDArray[np.float64]], evidence: Evidence) -> NDArray[np.bool_]:
    """(m, c) bool: readings that show a fault."""
    x = evidence.readings
    away = (x < part.inner_low) | (x > part.inner_high)
    away &= (changed["kind"] == Kind.UNIT) & (away.mean(axis=0) >= STILL_AWAY)
    shown: NDArray[np.bool_] = evidence.broken | evidence.stuck | away
    return shown | evidence.clipped | evidence.still | (evidence.unit >= 0)


def _kinds(value: NDArray[np.float64]) -> NDArray[np.int64]:
    """(c,) what a reading that is none is called."""
    kinds: NDArray[np.int64] = np.where(_is_none(value), int(Kind.DROPPED), int(Kind.RANGE))
    kinds = np.where(np.isinf(value), int(Kind.NOT_FINITE), kinds)
    kinds[np.isnan(value)] = Kind.MISSING
    return kinds


def is_sentinel(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(n,) whether a logger writes such a value for a reading that it does not have."""
    return np.asarray(np.logical_or.reduce(values[:, None] == _SENTINELS, axis=1))


def _is_none(value: NDArray[np.float64]) -> NDArray[np.bool_]:
    nothing: NDArray[np.bool_] = (value == 0) | is_sentinel(value)
    return nothing


def _replaced(state: Standing, changed: dict[str, NDArray[np.float64]]) -> NDArray[np.int64]:
    """Sensors whose fault turned out to be another."""
    return np.flatnonzero((state.kind != Kind.NONE) & (state.kind != changed["kind"]))


def _end(part: PartParams, changed: dict[str, NDArray[np.float64]], over: NDArray[np.bool_]) -> None:
    went_on = over & (changed["kind"] == Kind.STUCK)
    changed["patience"][went_on] = np.minimum(PATIENCE_MOST, 2.0 * changed["patience"][went_on])
    changed["kind"][over] = Kind.NONE
    changed["level"][over] = 0.0


def _report(state: Standing, sensor: int, until_s: float) -> FaultReport:
    return _report_of({name: getattr(state, name) for name in _NAMES}, sensor, until_s)


def _report_of(arrays: dict[str, NDArray[np.float64]], sensor: int, until_s: float | None) -> FaultReport:
    """Without the sensor's name and unit."""
    detail = float(arrays["detail"][sensor])
    words = _ALMOST if detail == _STILL else name_of(int(detail)) if detail >= 0 else ""
    since, value = float(arrays["since_s"][sensor]), float(arrays["value"][sensor])
    return FaultReport(Kind(int(arrays["kind"][sensor])), sensor, "", "", since, until_s, value, words)
