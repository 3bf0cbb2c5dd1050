"""How far a stream has moved at each time step, from 0 (as the net was made for) to 1."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

Schedule = Callable[[int, np.random.Generator], NDArray[np.float64]]
"""Time steps and chance to (steps,) values in [0, 1]."""
FLIP = 0.1
"""Chance of a change at a time step of the Bernoulli schedule; its source's published code has the same."""


def linear(steps: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Once across."""
    return np.linspace(0, 1, steps)


def sine(steps: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """To and fro, a period of the root of the number of steps."""
    period = _period(steps)
    return np.asarray(0.5 * (1 + np.sin(2 * np.pi * (np.arange(steps) % period) / period)))


def square(steps: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """There and back at once, half of that period each."""
    return (np.arange(steps) // (_period(steps) // 2) % 2).astype(np.float64)


def bernoulli(steps: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """There and back at once, at times that chance gives."""
    flips = rng.random(steps) < FLIP
    flips[0] = False
    return (np.cumsum(flips) % 2).astype(np.float64)


def _period(steps: int) -> int:
    return max(2, int(np.sqrt(steps)))


SCHEDULES: Mapping[str, Schedule] = MappingProxyType(
    {"linear": linear, "sine": sine, "square": square, "bernoulli": bernoulli}
)
"""Source: Bai et al. 2022 (ATLAS), online label shift; Fed-ADE takes the same four."""
