"""Labels of a replay that wait until they are due."""

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import compress
from typing import Protocol

from edge_agent.samples.record import Label

# A play that never ends with delays that never pass would else fill the memory; more are never given.
LABELS_DUE_CAP = 1_000_000


class DueLabels(Protocol):
    """Labels of a play's samples, given back when they are due."""

    def __len__(self) -> int:
        """How many wait."""

    @property
    def next_s(self) -> float:
        """When the next one is due; there must be one."""

    def schedule(self, first: int, ids: Sequence[str], values: Sequence[float], delays: Sequence[float]) -> None:
        """Take labels of samples side by side.

        Args:
            first: the number in the play of the first one.
            values: n entries, NaN where there is none.
            delays: n entries, seconds from sample to label, NaN for never; empty where all have the same.
        """

    def due(self, now_s: float) -> list[Label]:
        """Those that are due by then, in order."""


class InOrder:
    """Labels that all come equally late, so in the order of their samples; kept as they were read.

    Args:
        rate_hz: sample k of a play is due k / rate_hz seconds after its start.
        delay_s: from sample to label.
    """

    def __init__(self, rate_hz: float, delay_s: float) -> None:
        self._rate_hz = rate_hz
        self._delay_s = delay_s
        self._waiting = 0
        self._reads: deque[tuple[Sequence[int], Sequence[str], Sequence[float]]] = deque()

    def __len__(self) -> int:
        return self._waiting

    @property
    def next_s(self) -> float:
        """When the next one is due; there must be one."""
        return self._reads[0][0][0] / self._rate_hz + self._delay_s

    def schedule(self, first: int, ids: Sequence[str], values: Sequence[float], delays: Sequence[float] = ()) -> None:
        """See :class:`DueLabels`."""
        numbers: Sequence[int] = range(first, first + len(ids))
        total = sum(values)
        if total != total:  # NaN is what is not itself; infinities of both signs come here for nothing
            there = [value == value for value in values]
            numbers, ids = list(compress(numbers, there)), list(compress(ids, there))
            values = list(compress(values, there))
        room = LABELS_DUE_CAP - self._waiting
        if room < len(numbers):
            numbers, ids, values = numbers[:room], ids[:room], values[:room]
        if numbers:
            self._reads.append((numbers, ids, values))
            self._waiting += len(numbers)

    def due(self, now_s: float) -> list[Label]:
        """See :class:`DueLabels`."""
        given: list[Label] = []
        reads, rate_hz, delay_s = self._reads, self._rate_hz, self._delay_s
        while reads:
            numbers, ids, values = reads[0]
            if numbers[0] / rate_hz + delay_s > now_s:
                break
            if numbers[-1] / rate_hz + delay_s > now_s:
                count = bisect_right(numbers, now_s, key=lambda number: number / rate_hz + delay_s)
                given += map(Label, ids[:count], values[:count])
                reads[0] = numbers[count:], ids[count:], values[count:]
                break
            given += map(Label, ids, values)
            reads.popleft()
        self._waiting -= len(given)
        return given


class OutOfOrder:
    """Labels each of which has a delay of its own.

    Args:
        rate_hz: sample k of a play is due k / rate_hz seconds after its start.
    """

    def __init__(self, rate_hz: float) -> None:
        self._rate_hz = rate_hz
        self._heap: list[tuple[float, int, Label]] = []

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_s(self) -> float:
        """When the next one is due; there must be one."""
        return self._heap[0][0]

    def schedule(self, first: int, ids: Sequence[str], values: Sequence[float], delays: Iterable[float]) -> None:
        """See :class:`DueLabels`."""
        for number, (sample_id, value, delay_s) in enumerate(zip(ids, values, delays, strict=True), first):
            never = delay_s != delay_s or value != value
            if not never and len(self._heap) < LABELS_DUE_CAP:
                heapq.heappush(self._heap, (number / self._rate_hz + delay_s, number, Label(sample_id, value)))

    def due(self, now_s: float) -> list[Label]:
        """See :class:`DueLabels`."""
        given: list[Label] = []
        while self._heap and self._heap[0][0] <= now_s:
            given.append(heapq.heappop(self._heap)[2])
        return given
