"""What a window's means say of the shares of the classes, if within each class nothing has changed."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_STEPS = 300


def shares_that_fit(means: Floats, inverse: Floats, wanted: Floats, shares: Floats) -> Floats:
    """The shares under which the classes' means of many functions add up to the window's, by generalised least squares.

    Args:
        means: (classes, h) of each class.
        inverse: (h, h) inverse covariance of the functions within classes.
        wanted: (h,) means of the window.
        shares: (classes,) where to begin, > 0.

    Returns: (classes,) shares, not negative, their sum 1.

    Source: the moments of Lipton, Wang and Smola 2018 (black-box shift estimation), with many functions instead of
        the predicted class alone; solved by exponentiated gradients, which keep shares positive.
    """
    matrix, aim = means @ inverse @ means.T, means @ inverse @ wanted
    rate = 3.0 / max(float(np.abs(matrix).sum(axis=1).max()), 1e-12)
    for _ in range(_STEPS):
        moved = shares * np.exp(np.minimum(np.maximum(rate * (aim - matrix @ shares), -1.0), 1.0))
        moved /= moved.sum()
        if np.abs(moved - shares).max() < 1e-5:
            return moved
        shares = moved
    return shares


def misfit(inverse: Floats, away: Floats, noise: float) -> float:
    """Squared distance of means, per function, in units of the noise of two samples: about 1 where nothing differs."""
    return float(away @ inverse @ away) / (noise * len(away))
