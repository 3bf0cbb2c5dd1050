"""Many looks at once: readings that are all as in the reference are taken in by few operations, however many they are.

A sensor that strays for a moment costs a few more. What comes out is what `screen` makes of one look after the other,
bit for bit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.faults.clock import Times, gone_on
from edge_agent.drift.faults.closely import Seen, looked_at_anew, strayed_standing
from edge_agent.drift.faults.looks import Looks
from edge_agent.drift.faults.params import FaultParams, PartParams
from edge_agent.drift.faults.state import FaultState, PartState, Recent, Standing
from edge_agent.drift.faults.strays import Stray, Strays, let_pass, strays_of
from edge_agent.drift.faults.window import WINDOW, Window, are_odd, begun_anew, is_odd

LOOKS = 32
"""A stretch: of more, each costs no less."""


@dataclass(frozen=True)
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
    parts: tuple[Looks, ...]
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
        looks = len(times_s) // samples
        parts = []
        for part, before in zip(params.parts, state.parts, strict=True):
            times = np.repeat(times_s, part.block.readings) if part.block.readings > 1 else times_s
            x = part.block.readings_of(features)
            x = x if x.dtype == np.float32 else np.asarray(x, np.float64)
            parts.append(Looks.of(part, before.recent.last, x, times, looks))
        steps = np.empty(len(times_s))
        steps[0] = times_s[0] - state.latest_s
        np.subtract(times_s[1:], times_s[:-1], out=steps[1:])
        by_look = steps.reshape(looks, -1)
        least, most = np.minimum.reduce(by_look, axis=1).tolist(), np.maximum.reduce(by_look, axis=1).tolist()
        return cls(
            params, tuple(parts), times_s[samples - 1 :: samples].tolist(), list(zip(least, most, strict=True)), samples
        )

    def __len__(self) -> int:
        return len(self.last_s)

    @cached_property
    def strays(self) -> Strays:
        """Of the only block; of several blocks each look with a stray is looked at by itself."""
        return strays_of(self.params.parts[0], self.parts[0]) if len(self.parts) == 1 else {}

    def taken_in(self, state: FaultState, begin: int) -> tuple[FaultState, int]:
        """The state after as many looks from number ``begin`` on as show no fault, and how many they are.

        Cost: a few operations a window, and more for a look at which a sensor strays.
        """
        times = Times(state.latest_s, state.step_s, state.seen)
        walks = [_Walk(self, place, before, begin, state.calm) for place, before in enumerate(state.parts)]
        place = begin
        while place < len(self):
            following = gone_on(times, *self.steps_s[place], self.last_s[place], self.samples)
            if following is None or not all(walk.may_go_on(place) for walk in walks):
                break
            for walk in walks:
                walk.go_on(place)
            times, place = following, place + 1
        if place == begin:
            return state, 0
        return FaultState(tuple(walk.state(place) for walk in walks), *times, walks[0].calm), place - begin


class _Walk:
    """One block's sensors, from look to look."""

    def __init__(self, stretch: Stretch, number: int, before: PartState, begin: int, calm: bool) -> None:
        self._stretch, self._part, self._looks = stretch, stretch.params.parts[number], stretch.parts[number]
        self._recent, self._begin = before.recent, begin
        self._standing = self._following = before.standing
        self._run, self._run_s = before.recent.run, before.recent.run_s
        self._windows = _Windows(self._part, self._looks, before.recent, begin)
        self.calm = calm

    def may_go_on(self, place: int) -> bool:
        """Whether the look shows no fault."""
        if self._looks.zero[place]:
            return False
        part, full = self._part, place == self._windows.full_at
        outside = self._outside(place) if self._looks.doubtful[place] else ()
        if outside or not self.calm:
            after = self._strayed(place, outside) if len(self._stretch.parts) == 1 else None
            if after is None:
                return False
            self._following = looked_at_anew(part, after) if full else after
        elif self._stands_still(place, part.run_limit):
            return False
        elif full and self._standing.inner_low is not part.inner_low:
            self._following = self._standing._replace(inner_low=part.inner_low, inner_high=part.inner_high)
        else:
            self._following = self._standing
        return not (full and self._windows.is_odd())

    def go_on(self, place: int) -> None:
        """Past a look that shows none."""
        if self._following is not self._standing:
            self._standing, self.calm = self._following, self._following.calm
        if self._looks.same is not None or self._run is not self._part.once:
            self._run, self._run_s = self._looks.run_on(self._part, self._run, self._run_s, place)
        if place == self._windows.full_at:
            self._windows.begin_anew()

    def state(self, end: int) -> PartState:
        """After all looks up to ``end``, at least one."""
        if self._looks.same is None:
            self._run, self._run_s = self._looks.run_on(self._part, self._run, self._run_s, end - 1)
        return PartState(Recent(self._last(end), self._run, self._run_s, *self._windows.window(end)), self._standing)

    def _last(self, place: int) -> NDArray[np.float64]:
        """(c,) the readings before a look."""
        return self._recent.last if place == self._begin else self._looks.x[place - 1, -1].astype(np.float64)

    def _outside(self, place: int) -> list[int]:
        """Sensors with a reading where it has to be looked at, for all that is known of them by now."""
        top, standing = self._looks.top[place], self._standing
        found: list[int] = (~((top[0] <= standing.inner_high) & (-top[1] >= standing.inner_low))).nonzero()[0].tolist()
        return found

    def _stands_still(self, place: int, limit: NDArray[np.float64]) -> bool:
        if self._looks.same is None and self._run is self._part.once:
            return False
        return bool(np.count_nonzero(self._looks.equal[place] + self._run >= limit))

    def _strayed(self, place: int, outside: Sequence[int]) -> Standing | None:
        """After a look at which some sensors stray; None: something else is the matter."""
        standing, looks, last = self._standing, self._looks, self._last(place)
        if self._stands_still(place, self._part.run_limit * standing.patience):
            return None
        if outside and not (np.count_nonzero(standing.kind) or np.count_nonzero(standing.away)):
            strays = self._passing(place, outside)
            if strays is not None:
                return let_pass(self._part, standing, strays, last, looks.times_s[place])
        top, none = looks.top[place], np.zeros((0, 0), np.bool_)
        x, recent = looks.x[place].astype(np.float64), self._recent._replace(last=last, run=self._run)
        seen = Seen(x, looks.times_s[place], none, looks.equal[place], -top[1], top[0], False, in_time=True)
        return strayed_standing(self._part, PartState(recent, standing), seen)

    def _passing(self, place: int, outside: Sequence[int]) -> dict[int, Stray] | None:
        """What is known of them beforehand; None: one of them has to be looked at."""
        known, part, standing = self._stretch.strays.get(place, {}), self._part, self._standing
        for sensor in outside:
            if sensor not in known or standing.inner_low[sensor] != part.inner_low[sensor]:
                return None
            if standing.inner_high[sensor] != part.inner_high[sensor]:
                return None
        return {sensor: known[sensor] for sensor in outside}


class _Windows:
    """The windows of one block's sensors; ``full_at``: the look after which the present one is full."""

    def __init__(self, part: PartParams, looks: Looks, recent: Recent, begin: int) -> None:
        self._part, self._looks, self._since = part, looks, begin
        self._window = Window(recent.top, recent.often, recent.window_s, recent.filled)
        self._odd: dict[int, bool] = {}
        self.full_at = self._full_at()

    def is_odd(self) -> bool:
        """Whether the present one will be, when it is full."""
        if self._window.filled:
            return is_odd(self._part, self.window(self.full_at + 1))
        if self.full_at not in self._odd:
            each = self.full_at + 1 - self._since
            odd = are_odd(self._part, *self._looks.windows(self._since, each), each * self._looks.size)
            self._odd |= zip(count(self.full_at, each), odd)
        return self._odd[self.full_at]

    def begin_anew(self) -> None:
        """After a full one."""
        self._window, self._since = begun_anew(self._window), self.full_at + 1
        self.full_at = self._full_at()

    def window(self, end: int) -> Window:
        """The present one after all looks up to ``end``."""
        return self._looks.widened(self._window, self._since, end)

    def _full_at(self) -> int:
        return self._since - (self._window.filled - WINDOW) // self._looks.size - 1
