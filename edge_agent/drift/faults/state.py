"""How far the screen has come: of fixed size, and the same after a restart, bit for bit."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.faults.params import FaultParams, PartParams
from edge_agent.errors import DataError

FADED = 0.05


class Recent(NamedTuple):
    """The latest readings of the c sensors of one block, and those of the window so far.

    Attributes:
        last, run, run_s: (c,) the latest reading, how many in a row equal it, and when the first of them was.
        top, often: (2, c) the highest of the window's readings and of their negatives, and how often each came.
        window_s: when the window began.
        filled: its readings.
    """

    last: NDArray[np.float64]
    run: NDArray[np.float64]
    run_s: NDArray[np.float64]
    top: NDArray[np.float64]
    often: NDArray[np.float64]
    window_s: float
    filled: int


class Standing(NamedTuple):
    """What is open or looked at, (c,) each; times in seconds, values in the sensor's unit.

    Attributes:
        level: broken readings of late, fading.
        first_s, first_value: the first of them.
        kind, since_s, value, detail: the fault that is open (``Kind``; ``detail``: number of the unit's change, or less
            than 0).
        quiet, quiet_s: sound readings since the last broken one, and when the first of them was.
        patience: factor on the limit of equal readings: a sensor that went on after standing still may again.
        inner_low, inner_high: between them nothing has to be looked at.
        away, away_out, away_fit, away_sum, away_squares, away_before, away_s, away_value: readings since it left its
            range, how many of them were outside, how many (changes, c) each change of unit explains, their sums, the
            reading before, and the first.
    """

    level: NDArray[np.float64]
    first_s: NDArray[np.float64]
    first_value: NDArray[np.float64]
    kind: NDArray[np.float64]
    since_s: NDArray[np.float64]
    value: NDArray[np.float64]
    detail: NDArray[np.float64]
    quiet: NDArray[np.float64]
    quiet_s: NDArray[np.float64]
    patience: NDArray[np.float64]
    inner_low: NDArray[np.float64]
    inner_high: NDArray[np.float64]
    away: NDArray[np.float64]
    away_out: NDArray[np.float64]
    away_fit: NDArray[np.float64]
    away_sum: NDArray[np.float64]
    away_squares: NDArray[np.float64]
    away_before: NDArray[np.float64]
    away_s: NDArray[np.float64]
    away_value: NDArray[np.float64]

    @property
    def calm(self) -> bool:
        """Whether no sensor is broken, was so of late, or is looked at."""
        return not any(map(np.count_nonzero, (self.kind, self.away, self.level > FADED)))


class PartState(NamedTuple):
    """Of one block's sensors."""

    recent: Recent
    standing: Standing


@dataclass(frozen=True, slots=True)
class FaultState:
    """Of all sensors, and of the samples' times.

    Attributes:
        parts: by block.
        latest_s: time of the latest sample; NaN: none yet.
        step_s: what usually passes from sample to sample; 0: not known yet.
        seen: samples so far.
        calm: whether no sensor is broken, was so of late, or is looked at.
    """

    parts: tuple[PartState, ...]
    latest_s: float = float("nan")
    step_s: float = 0.0
    seen: int = 0
    calm: bool = True

    @classmethod
    def start(cls, params: FaultParams) -> Self:
        """Nothing read yet."""
        return cls(tuple(_start(part) for part in params.parts))

    def to_arrays(self) -> dict[str, NDArray[np.float64]]:
        """Everything, by name: a table a block, of so many rows a sensor."""
        found = {"clock": np.array([self.latest_s, self.step_s, float(self.seen)])}
        for place, (recent, standing) in enumerate(self.parts):
            rows = [np.atleast_2d(getattr(recent, name)) for name in _RECENT]
            rows += [np.atleast_2d(getattr(standing, name)) for name in _STANDING]
            found[f"{place}.sensors"] = np.concatenate(rows)
            found[f"{place}.window"] = np.array([recent.window_s, float(recent.filled)])
        return found

    @classmethod
    def from_arrays(cls, params: FaultParams, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """From :meth:`to_arrays`.

        Raises:
            DataError: an array is absent, or not of these sensors (named).
        """
        parts = tuple(_stored(part, place, arrays) for place, part in enumerate(params.parts))
        latest, step, seen = (float(value) for value in _taken(arrays, "clock", (3,)))
        if not (seen >= 0 and step >= 0):
            raise DataError("fault screen: stored array 'clock' is none", "it begins anew")
        return cls(parts, latest, step, int(seen), all(part.standing.calm for part in parts))


_RECENT = ("last", "run", "run_s", "top", "often")
_STANDING = Standing._fields
_MAY_BE_NAN = ("last", "first_value", "value", "away_before", "away_value", "first_s", "since_s", "away_s", "run_s")
_ALL = (*_RECENT, *_STANDING)


def _shape(name: str, part: PartParams) -> tuple[int, ...]:
    sensors = part.block.channels
    if name in ("top", "often"):
        return (2, sensors)
    return (len(part.changes.numbers), sensors) if name == "away_fit" else (sensors,)


def _start(part: PartParams) -> PartState:
    sensors = part.block.channels
    standing = {name: np.zeros(_shape(name, part)) for name in _STANDING}
    standing |= {"patience": np.ones(sensors), "inner_low": part.inner_low, "inner_high": part.inner_high}
    nothing = np.zeros(sensors)
    top = np.full((2, sensors), -np.inf)
    recent = Recent(np.full(sensors, np.nan), nothing, nothing, top, np.zeros((2, sensors)), 0.0, 0)
    return PartState(recent, Standing(**standing))


def _stored(part: PartParams, place: int, arrays: Mapping[str, NDArray[Any]]) -> PartState:
    sensors = part.block.channels
    heights = {name: 1 if len(_shape(name, part)) == 1 else _shape(name, part)[0] for name in _ALL}
    table = _taken(arrays, f"{place}.sensors", (sum(heights.values()), sensors))
    found: dict[str, NDArray[np.float64]] = {}
    row = 0
    for name, height in heights.items():
        found[name] = table[row : row + height].reshape(_shape(name, part)).copy()
        row += height
        if name not in _MAY_BE_NAN and np.isnan(found[name]).any():
            raise DataError(f"fault screen: stored {name!r} has NaN", "it begins anew")
    window_s, filled = (float(value) for value in _taken(arrays, f"{place}.window", (2,)))
    if not 0 <= filled < 2**53:
        raise DataError(f"fault screen: stored array '{place}.window' is none", "it begins anew")
    recent = Recent(found["last"], found["run"], found["run_s"], found["top"], found["often"], window_s, int(filled))
    return PartState(recent, Standing(**{name: found[name] for name in _STANDING}))


def _taken(arrays: Mapping[str, NDArray[Any]], name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    array = arrays.get(name)
    if array is None or array.shape != shape or array.dtype != np.float64:
        raise DataError(f"fault screen: stored array {name!r} is not {list(shape)} float64", "it begins anew")
    return array
