"""Loss streams without drift: generators of known autocorrelation, and real stretches with what came after."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from tests.benchmarks.drift_data.tasks import TASKS, load

Floats = NDArray[np.float64]
BATCH = 32


@dataclass(frozen=True, slots=True)
class World:
    """An endless stationary stream.

    Attributes:
        name: in tables.
        phi: of the Gaussian AR(1) whose squares are the losses; 0: independent.
    """

    name: str
    phi: float

    @property
    def inflation(self) -> float:
        """Variance of a long mean of the losses over that of independent ones: their correlations are phi^(2 k)."""
        return (1 + self.phi**2) / (1 - self.phi**2)

    def losses(self, streams: int, length: int, rng: np.random.Generator) -> Floats:
        """(streams, length) losses, chi-square with one degree of freedom, from the stationary law on."""
        steps = rng.normal(size=(streams, length)) * np.sqrt(1 - self.phi**2)
        if self.phi:
            begin = rng.normal(size=(streams, 1)) * self.phi
            steps = lfilter([1.0], [1.0, -self.phi], steps, axis=1, zi=begin)[0]
        return np.asarray(np.square(steps))

    def reference(self, effective_batches: float, rng: np.random.Generator) -> Floats:
        """(n,) losses worth that many independent batches."""
        losses: Floats = self.losses(1, int(effective_batches * BATCH * self.inflation), rng)[0]
        return losses


WORLDS = (World("independent", 0.0), World("AR(1) 0.3", 0.3), World("AR(1) 0.6", 0.6), World("AR(1) 0.9", 0.9))


@dataclass(frozen=True, slots=True)
class Stretch:
    """Losses of a real net on rows it was not trained on.

    Attributes:
        name: of the data.
        first: in time order, of the stretch that the net was trained on.
        later: what came after, each in time order.
    """

    name: str
    first: Floats
    later: tuple[Floats, ...]


def stretches(folder: Path) -> list[Stretch]:
    """All real data; the nets are trained anew, seconds each."""
    return [stretch(name, folder) for name in TASKS]


def stretch(name: str, folder: Path) -> Stretch:
    """One of them, by its name in the tasks."""
    task = load(name, folder)
    losses: Callable[..., Floats] = lambda rows: task.net.judge(rows).losses  # noqa: E731
    return Stretch(name, losses(task.pool), tuple(losses(rows) for rows in task.later))
