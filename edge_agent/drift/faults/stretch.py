"""Many looks at once: readings that are all as in the reference are taken in by few operations, however many they are.

A sensor that strays for a moment costs a few more. What comes out is what `screen` makes of one look after the other,
bit for bit.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.faults.clock import Times, gone_on
from edge_agent.drift.faults.closely import Seen, looked_at_anew, strayed_standing
from edge_agent.drift.faults.params import FaultParams, PartParams
from edge_agent.drift.faults.state import FaultState, PartState, Recent, Standing
from edge_agent.drift.faults.window import WINDOW, Window, begun_anew, is_odd


class _Readings(NamedTuple):
    """What k looks, of so many readings each, show of c sensors.

    Attributes:
        x: (k, readings, c).
        times_s: (k, readings).
        same: (k, readings, c) whether each equals the one before it; None: none does.
        equal: (k, c) how many do.
        top: (k, 2, c) the highest, and the highest of the negatives.
        often: (k, 2, c) how often each came.
        zero: k; whether a sensor reads 0 that never does.
        doubtful: k; whether one does, or lies outside of where nothing has to be looked at.
    """

    x: NDArray[np.float64]
    times_s: NDArray[np.float64]
    same: NDArray[np.bool_] | None
    equal: NDArray[np.int64]
    top: NDArray[np.float64]
    often: NDArray[np.float64]
    zero: list[bool]
    doubtful: list[bool]

    @classmethod
    def of(
        cls, part: PartParams, last: NDArray[np.float64], x: NDArray[np.float64], times_s: NDArray[np.float64], k: int
    ) -> "_Readings":
        looks = x.reshape(k, -1, x.shape[1])
        same = np.empty(x.shape, np.bool_)
        np.equal(x[0], last, out=same[0])
        np.equal(x[1:], x[:-1], out=same[1:])
        some = bool(np.count_nonzero(same))
        shaped = same.reshape(looks.shape)
        equal = np.add.reduce(shaped, axis=1) if some else np.zeros((k, x.shape[1]), np.int64)
        top, often = np.empty((2, k, 2, x.shape[1]))
        np.maximum.reduce(looks, axis=1, out=top[:, 0])
        lowest = np.minimum.reduce(looks, axis=1)
        np.negative(lowest, out=top[:, 1])
        for side, value in enumerate((top[:, 0], lowest)):
            at = looks == value[:, None]
            if np.count_nonzero(at) == value.size:
                often[:, side] = 1.0
            else:
                np.add.reduce(at, axis=1, out=often[:, side])
        zero = np.zeros(k, np.bool_)
        if part.zero is not None and np.count_nonzero(x == 0):
            zero = np.logical_or.reduce((looks == 0) & part.zero, axis=(1, 2))
        inside = (top[:, 0] <= part.inner_high) & (lowest >= part.inner_low)  # not so of what is no number
        doubtful = zero | ~np.logical_and.reduce(inside, axis=1)
        same_or_none = shaped if some else None
        return cls(looks, times_s.reshape(k, -1), same_or_none, equal, top, often, zero.tolist(), doubtful.tolist())


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some looks at all sensors, of equally many samples each, whose times are finite.

    Attributes:
        params: of the screen.
        parts: by block.
        last_s: time of each look's last sample.
        steps_s: the shortest and the longest step to one of each look's samples from the one before it.
        samples: a look.
    """

    params: FaultParams
    parts: tuple[_Readings, ...]
    last_s: list[float]
    steps_s: list[tuple[float, float]]
    samples: int

    @classmethod
    def of(
        cls, params: FaultParams, state: FaultState, features: NDArray[Any], times_s: NDArray[np.float64]
    ) -> "Stretch":
        """Of (k x ``rows_a_look``, f) samples.

        Cost: O(samples f).
        """
        samples = params.rows_a_look
        count = len(times_s) // samples
        parts = []
        for part, before in zip(params.parts, state.parts, strict=True):
            times = np.repeat(times_s, part.block.readings) if part.block.readings > 1 else times_s
            x = np.asarray(part.block.readings_of(features), np.float64)
            parts.append(_Readings.of(part, before.recent.last, x, times, count))
        steps = np.empty(len(times_s))
        steps[0] = times_s[0] - state.latest_s
        np.subtract(times_s[1:], times_s[:-1], out=steps[1:])
        by_look = steps.reshape(count, -1)
        least, most = np.minimum.reduce(by_look, axis=1).tolist(), np.maximum.reduce(by_look, axis=1).tolist()
        return cls(
            params, tuple(parts), times_s[samples - 1 :: samples].tolist(), list(zip(least, most, strict=True)), samples
        )

    def taken_in(self, state: FaultState, begin: int) -> tuple[FaultState, int]:
        """The state after as many looks from number ``begin`` on as show no fault, and how many they are.

        Cost: a few operations of O(looks c), some of O(c) a window, and more for a look at which a sensor strays.
        """
        went, count = state, 0
        while begin + count < len(self.steps_s):
            several = 0
            if went.calm:
                went, several = self._sound(went, begin + count)
            if several == 0:
                went, several = self._strayed(went, begin + count)
            if several == 0:
                break
            count += several
        return went, count

    def _sound(self, state: FaultState, begin: int) -> tuple[FaultState, int]:
        """After as many looks as are sound."""
        count = len(self.steps_s) - begin
        for part, before, readings in zip(self.params.parts, state.parts, self.parts, strict=True):
            count = _unsurprising(part, before, readings, begin, count) if count else 0
        times = self._times(state, begin, count)
        count = len(times)
        parts: list[PartState] = []
        while count and len(parts) < len(self.parts):
            place = len(parts)
            part, before = self.params.parts[place], state.parts[place]
            after, reached = _followed(part, before, self.parts[place], begin, count)
            parts.append(after)
            if reached < count:
                count, parts = reached, parts if len(parts) == 1 else []
        return (FaultState(tuple(parts), *times[count - 1], calm=True), count) if count else (state, 0)

    def _strayed(self, state: FaultState, place: int) -> tuple[FaultState, int]:
        """After a look at which sensors of the only block stray, and nothing else is the matter."""
        times = self._times(state, place, 1)
        if not times or len(self.parts) > 1:
            return state, 0
        after = _strayed(self.params.parts[0], state.parts[0], self.parts[0], place)
        return (FaultState((after,), *times[0], calm=after.standing.calm), 1) if after is not None else (state, 0)

    def _times(self, state: FaultState, begin: int, count: int) -> list[Times]:
        """After each of so many looks, up to the first that does not go on in time."""
        times, found, looks = Times(state.latest_s, state.step_s, state.seen), [], slice(begin, begin + count)
        for (least_s, most_s), last_s in zip(self.steps_s[looks], self.last_s[looks], strict=True):
            following = gone_on(times, least_s, most_s, last_s, self.samples)
            if following is None:
                break
            times = following
            found.append(times)
        return found


def _followed(part: PartParams, state: PartState, readings: _Readings, begin: int, most: int) -> tuple[PartState, int]:
    """One block's sensors after at most so many looks that are sound but for their windows; and how many are."""
    recent, standing = state
    window, at, size = Window(recent.top, recent.often, recent.window_s, recent.filled), begin, readings.x.shape[1]
    while at < begin + most:
        upto = min(begin + most, at - (window.filled - WINDOW) // size)
        wider = _widened(window, readings, at, upto)
        if wider.filled >= WINDOW:
            if is_odd(part, wider):  # what its last look shows is for that look alone to say
                most = upto - 1 - begin
                window = _widened(window, readings, at, upto - 1) if upto - 1 > at else window
                break
            wider = begun_anew(wider)
            if standing.inner_low is not part.inner_low:
                standing = standing._replace(inner_low=part.inner_low, inner_high=part.inner_high)
                most = upto - begin  # what comes then is held against other limits
        window, at = wider, upto
    if most == 0:
        return state, 0
    return PartState(_recent(part, recent, readings, begin, begin + most, window), standing), most


def _strayed(part: PartParams, state: PartState, readings: _Readings, place: int) -> PartState | None:
    top, same = readings.top[place], readings.x[place, :0] == 0
    seen = Seen(
        readings.x[place],
        readings.times_s[place],
        same,
        readings.equal[place],
        -top[1],
        top[0],
        readings.zero[place],
        in_time=True,
    )
    after = strayed_standing(part, state, seen)
    if after is None:
        return None
    recent = state.recent
    window = _widened(Window(recent.top, recent.often, recent.window_s, recent.filled), readings, place, place + 1)
    if window.filled >= WINDOW:
        if is_odd(part, window):
            return None
        window, after = begun_anew(window), looked_at_anew(part, after)
    return PartState(_recent(part, recent, readings, place, place + 1, window), after)


def _unsurprising(part: PartParams, state: PartState, readings: _Readings, begin: int, most: int) -> int:
    """How many of the next looks have every reading where it may be, none of them for too long."""
    standing, most_so = state.standing, begin + most
    runs = None if readings.same is None else _runs(part, state.recent, readings, begin, most_so)
    for place in range(begin, most_so):
        if readings.doubtful[place] and (readings.zero[place] or _outside(standing, readings.top[place])):
            return place - begin
        if runs is not None or (place == begin and state.recent.run is not part.once):
            run = state.recent.run if runs is None else runs[place - begin][0]
            if np.count_nonzero(readings.equal[place] + run >= part.run_limit):
                return place - begin
    return most


def _outside(standing: Standing, top: NDArray[np.float64]) -> bool:
    """Whether a reading of a look lies where it has to be looked at, for all that is known of its sensor by now."""
    inside = (top[0] <= standing.inner_high) & (-top[1] >= standing.inner_low)
    return bool(np.count_nonzero(inside) < len(inside))


def _recent(part: PartParams, recent: Recent, readings: _Readings, begin: int, end: int, window: Window) -> Recent:
    """The latest readings after some looks."""
    first = end - 1 if readings.same is None else begin
    run, run_s = _runs(part, recent, readings, first, end)[-1]
    return Recent(readings.x[end - 1, -1].copy(), run, run_s, *window)


def _runs(
    part: PartParams, recent: Recent, readings: _Readings, begin: int, end: int
) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """How many readings in a row equal the latest, and when the first of them was: before each look, and after all."""
    run, run_s = recent.run, recent.run_s
    found, size = [(run, run_s)], readings.x.shape[1]
    for place in range(begin, end):
        times_s, same = readings.times_s[place], readings.same
        if same is None or not np.count_nonzero(same[place]):
            run, run_s = part.once, part.once * times_s[-1]
        else:
            tail = same[place, ::-1].argmin(axis=0)
            whole = readings.equal[place] == size
            run = np.where(whole, run + size, tail + 1.0)
            run_s = np.where(whole, run_s, times_s[size - 1 - tail])
        found.append((run, run_s))
    return found


def _widened(window: Window, readings: _Readings, begin: int, end: int) -> Window:
    """With some looks taken in."""
    top, often = readings.top[begin:end], readings.often[begin:end]
    best = np.maximum(window.top, np.maximum.reduce(top, axis=0))
    count = np.add.reduce(often * (top == best), axis=0)
    count += window.often * (window.top == best)
    since_s = window.since_s if window.filled else float(readings.times_s[begin, 0])
    return Window(best, count, since_s, window.filled + (end - begin) * readings.x.shape[1])
