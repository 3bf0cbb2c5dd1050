"""Synthetic loss streams with a heavy tail, as a good and as a drifted classifier give them."""

import numpy as np
from numpy.typing import NDArray

CLASSES = 7


def clean_losses(n: int, rng: np.random.Generator, *, error_rate: float = 0.04) -> NDArray[np.float64]:
    """Mostly near zero, a few errors: mean about 0.1 clipped at ln 7."""
    wrong = rng.random(n) < error_rate
    return np.where(wrong, rng.exponential(3.0, n), rng.exponential(0.03, n))


def drifted_losses(n: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Mostly wrong: mean about 1.4 clipped."""
    right = rng.random(n) < 0.2
    return np.where(right, rng.exponential(0.3, n), rng.exponential(6.0, n))
