"""What a screen says: which readings are broken, and which faults begin and end."""

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class Kind(IntEnum):
    """What is wrong with a sensor, or with the samples' times; the numbers are those of stored states."""

    NONE = 0
    MISSING = 1
    NOT_FINITE = 2
    RANGE = 3
    DROPPED = 4
    STUCK = 5
    CLIPPED = 6
    UNIT = 7
    GAP = 8
    CLOCK = 9

    @property
    def word(self) -> str:
        """As reports spell it."""
        return _WORDS[self]


_WORDS = {
    Kind.NONE: "none",
    Kind.MISSING: "missing",
    Kind.NOT_FINITE: "not-finite",
    Kind.RANGE: "out-of-range",
    Kind.DROPPED: "dropped",
    Kind.STUCK: "stuck",
    Kind.CLIPPED: "clipped",
    Kind.UNIT: "unit",
    Kind.GAP: "time-gap",
    Kind.CLOCK: "clock-backwards",
}


@dataclass(frozen=True, slots=True)
class FaultReport:
    """A fault that begins or ends.

    Attributes:
        kind: what is wrong.
        sensor: its number among the channels; -1: the samples' times.
        name, unit: of the sensor.
        since_s: time of the first reading that is taken for broken.
        until_s: time of the first sound one again; None: it lasts.
        value: the first broken reading, in the unit; a change of the clock in seconds; NaN: there is none.
        detail: more, in words: ``read x 10``.
    """

    kind: Kind
    sensor: int
    name: str
    unit: str
    since_s: float
    until_s: float | None
    value: float
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Screened:
    """One batch, screened.

    Attributes:
        faulty: (n, f) bool, readings that are taken for broken; None: none is.
        reports: faults that began or ended.
    """

    faulty: NDArray[np.bool_] | None
    reports: tuple[FaultReport, ...] = ()

    def fit(self, rows: int) -> NDArray[np.bool_]:
        """(n,) whether no reading of the row is broken."""
        fit: NDArray[np.bool_] = np.ones(rows, np.bool_)
        if self.faulty is not None:
            fit &= ~self.faulty.any(axis=1)
        return fit
