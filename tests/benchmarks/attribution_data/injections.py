"""What is done to a sensor's readings, in units of its own spread."""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

RAMP_BATCHES = 60

Injection = Callable[[NDArray[np.float64], NDArray[np.float64], float, np.random.Generator], NDArray[np.float64]]
"""(readings (n,), batches since the beginning (n,), the sensor's deviation, chance) to readings."""


def shift(readings: NDArray[np.float64], _: object, deviation: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """The mean moves by one deviation."""
    return np.asarray(readings + deviation * rng.choice([-1.0, 1.0]))


def scale(readings: NDArray[np.float64], _: object, deviation: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Distances from the mean grow by half."""
    middle = float(readings.mean())
    return np.asarray(middle + 1.5 * (readings - middle))


def noise(readings: NDArray[np.float64], _: object, deviation: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Noise of one deviation is added."""
    return readings + deviation * rng.normal(size=len(readings))


def ramp(
    readings: NDArray[np.float64], batches: NDArray[np.float64], deviation: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """The mean moves to two deviations away over 60 batches, and stays."""
    return np.asarray(readings + 2.0 * deviation * rng.choice([-1.0, 1.0]) * np.minimum(batches / RAMP_BATCHES, 1.0))


INJECTIONS: Mapping[str, Injection] = {"shift": shift, "scale": scale, "noise": noise, "ramp": ramp}
