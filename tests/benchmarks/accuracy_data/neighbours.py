"""Figures on stationary streams of known accuracy whose neighbours resemble each other, by the reference's length."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from tests.drift.accuracy.neighbouring import FEATURES, WINDOW, Floats, World, autoregressive

DEPENDENCES = (0.0, 0.3, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0)
ROWS = (500, 1000, 2000, 4000, 12_000)
TAMPERED_ROWS, TAMPERED = 2000, (0.0, 0.6, 0.9)
REFERENCES, WINDOWS, FIRST_SEED = 6, 40, 100
WALKS = 8
"""A random walk leaves what its reference has seen: so many times as many references, and as many fewer windows."""

Tampering = Callable[[Floats, np.random.Generator], Floats]
FIRST = np.arange(FEATURES) == 0
SENSORS: Mapping[str, Tampering] = MappingProxyType(
    {
        "scaled by two": lambda window, _: window * np.where(FIRST, 2.0, 1.0),
        "noise of its own size": lambda window, rng: window + FIRST * rng.normal(size=window.shape),
        "stands still": lambda window, _: np.where(FIRST, 0.0, window),
    }
)


@dataclass(frozen=True, slots=True)
class Told:
    """What became of windows.

    Attributes:
        phi: correlation of neighbours; 1: a random walk.
        rows: of the reference.
        sensor: what was done to one of eight sensors; "": nothing.
        windows: how many.
        refusals: of them, by reason.
        covered: of those with a figure, how many have the truth in their interval.
    """

    phi: float
    rows: int
    sensor: str
    windows: int
    refusals: Mapping[str, int]
    covered: int

    def __str__(self) -> str:
        """For people."""
        figures = self.windows - sum(self.refusals.values())
        covered = f"{self.covered / figures:.0%}" if figures else "-"
        what = self.sensor or "unchanged"
        shares = ", ".join(f"{name} {count / self.windows:.1%}" for name, count in sorted(self.refusals.items()))
        share = figures / self.windows
        return f"  AR(1) {self.phi:<5g} {self.rows:6d} rows, {what}: figures {share:.0%}, covered {covered}; {shares}"


def every(references: int = REFERENCES, windows: int = WINDOWS) -> Iterator[Told]:
    """All cells."""
    for phi in DEPENDENCES:
        for rows in ROWS:
            yield told(phi, rows, "", references, windows)
    for phi in TAMPERED:
        for sensor in SENSORS:
            yield told(phi, TAMPERED_ROWS, sensor, references, windows)


def told(phi: float, rows: int, sensor: str, references: int, windows: int) -> Told:
    """One cell: so many references, so many windows on end right after each, each judged by itself."""
    if phi == 1.0:
        references, windows = references * WALKS, max(1, windows // WALKS)
    refusals: Counter[str] = Counter()
    covered = 0
    for seed in range(FIRST_SEED, FIRST_SEED + references):
        world = World(phi, seed)
        features = autoregressive(rows + windows * WINDOW, phi, world.rng)
        params = world.calibrated_on(features[:rows])
        for window in np.split(features[rows:], windows):
            _, labels = world.served(window)
            seen = SENSORS[sensor](window, world.rng) if sensor else window
            found = world.judged(params, seen)
            truth = float(((seen @ world.form).argmax(axis=1) == labels).mean())
            if found.refused:
                refusals[found.refusal] += 1
            else:
                covered += bool(found.low <= truth <= found.high)
    return Told(phi, rows, sensor, references * windows, dict(refusals), covered)
