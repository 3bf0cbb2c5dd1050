"""Which outbox sequences of one (gateway, epoch) are done: a low-water mark and a few ranges above it."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

MAX_RANGES = 512

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Mark:
    """Every sequence below ``low`` is done; so are the ``above`` ranges (both ends included, sorted, apart)."""

    low: int = 0
    above: tuple[Range, ...] = ()

    def covers(self, sequence: int) -> bool:
        """Whether ``sequence`` is done."""
        return sequence < self.low or any(first <= sequence <= last for first, last in self.above)

    def missing_below(self, low: int) -> int:
        """How many sequences below ``low`` are not done; the first is 1."""
        covered = sum(min(last, low - 1) - first + 1 for first, last in self.above if first < low)
        return max(low - max(self.low, 1) - covered, 0)

    def advance(self, *, low: int, done: Iterable[Range]) -> Self:
        """The mark after the gateway holds nothing below ``low``, and ``done`` ranges are done too.

        The number of ranges is not limited here: see :meth:`fits`.
        """
        floor = max(self.low, low)
        merged: list[Range] = []
        for first, last in sorted([*self.above, *(pair for pair in done if pair[0] <= pair[1])]):
            if last < floor:
                continue
            if first <= floor:
                floor = last + 1
            elif merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(merged[-1][1], last))
            else:
                merged.append((first, last))
        return type(self)(floor, tuple(merged))

    @property
    def fits(self) -> bool:
        """Whether the gap set is small enough to keep; if not, the message waits for a re-send."""
        return len(self.above) <= MAX_RANGES

    def above_json(self) -> str:
        """The ranges for the store."""
        return json.dumps(self.above, separators=(",", ":"))

    @classmethod
    def from_store(cls, low: int, above: str) -> Self:
        """Read what :meth:`above_json` wrote."""
        return cls(low, tuple((int(first), int(last)) for first, last in json.loads(above)))


def ranges(sequences: Iterable[int]) -> list[Range]:
    """Sequences as sorted ranges, both ends included."""
    found: list[Range] = []
    for sequence in sorted(set(sequences)):
        if found and found[-1][1] == sequence - 1:
            found[-1] = (found[-1][0], sequence)
        else:
            found.append((sequence, sequence))
    return found
