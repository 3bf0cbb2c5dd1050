"""What a covariate shift does to images, from not at all (0) to fully (1)."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

Images = NDArray[np.float32]
"""(n, channels, side, side), pixels in [0, 1]."""
Corruption = Callable[[Images, float, np.random.Generator], Images]
LIGHT, NOISE, TURN_DEGREES = 0.3, 0.35, 30.0


def light(images: Images, share: float, rng: np.random.Generator) -> Images:
    """Brighter, so that black is grey."""
    return images + np.float32(LIGHT * share)


def dark(images: Images, share: float, rng: np.random.Generator) -> Images:
    """Darker, so that black is below zero."""
    return images - np.float32(LIGHT * share)


def noise(images: Images, share: float, rng: np.random.Generator) -> Images:
    """Grain."""
    return np.clip(images + rng.normal(0, NOISE * share, images.shape).astype(np.float32), 0, 1)


def turn(images: Images, share: float, rng: np.random.Generator) -> Images:
    """Turned about the middle, the nearest pixel taken."""
    side, angle = images.shape[-1], np.deg2rad(TURN_DEGREES * share)
    middle = (side - 1) / 2
    y, x = np.mgrid[:side, :side] - middle
    rows = np.rint(np.cos(angle) * y - np.sin(angle) * x + middle).astype(int)
    columns = np.rint(np.sin(angle) * y + np.cos(angle) * x + middle).astype(int)
    inside = (rows >= 0) & (rows < side) & (columns >= 0) & (columns < side)
    turned = images[..., rows.clip(0, side - 1), columns.clip(0, side - 1)]
    return np.asarray(turned * inside, np.float32)


def fade(images: Images, share: float, rng: np.random.Generator) -> Images:
    """Less contrast: towards the middle grey."""
    return np.asarray(images + np.float32(0.7 * share) * (np.float32(0.5) - images), np.float32)


CORRUPTIONS: Mapping[str, Corruption] = MappingProxyType(
    {"light": light, "noise": noise, "turn": turn, "dark": dark, "fade": fade}
)
"""A client has one of them, the first client the first."""
