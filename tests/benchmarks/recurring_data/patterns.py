"""FedDrift's drift patterns: which client sees which concept when."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

STEPS, CLIENTS = 10, 10
NAMES = ("A", "B", "C", "D", "E", "F", "W", "X", "Y", "Z")
TWO, FOUR = 2, 4


@dataclass(frozen=True, slots=True)
class Pattern:
    """One pattern.

    Attributes:
        name: its letter.
        concepts: (11, 10) concept of each client's data at each time step; the last row is for tests only.
    """

    name: str
    concepts: NDArray[np.intp]

    @property
    def needs(self) -> int:
        """How many concepts a data set must have: the highest number plus one."""
        return int(self.concepts.max()) + 1

    @property
    def count(self) -> int:
        """How many concepts occur in the time steps that are trained on."""
        return self.seen(STEPS - 1)

    def seen(self, now: int) -> int:
        """How many concepts have occurred up to a time step."""
        return len(np.unique(self.concepts[: now + 1]))

    def present(self, now: int) -> int:
        """How many concepts there are in a time step."""
        return len(np.unique(self.concepts[now]))


def read_pattern(folder: Path, name: str) -> Pattern:
    """A pattern from its matrix of numbers.

    Raises:
        ValueError: the matrix has another shape than 11 time steps of 10 clients.
    """
    concepts = np.loadtxt(folder / "feddrift" / f"{name}.cp", dtype=np.intp)
    if concepts.shape != (STEPS + 1, CLIENTS):
        raise ValueError(f"pattern {name} has shape {concepts.shape}, not {(STEPS + 1, CLIENTS)}")
    return Pattern(name, concepts)


def fitting(folder: Path, concepts: int) -> list[Pattern]:
    """The patterns of a data set: those of two concepts for two, those of more for four."""
    patterns = [read_pattern(folder, name) for name in NAMES]
    return [pattern for pattern in patterns if (pattern.needs <= TWO) == (concepts == TWO)]
