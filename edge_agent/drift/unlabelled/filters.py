"""Batch means over several time scales, each standardised by what it varies without a change.

Five exponentially weighted means remember 1, 3, 9, 27 and 81 batches. Eight *views* of them: the five against the
bundle's reference (a change that stays, however slow), and three of them against a memory nine times as long (a change
that is sudden, whatever the stream's level). A reference's rows depend on each other; what that does to each view's
variance follows from a first-order autoregression with the variance inflation that was measured.
"""

import numpy as np
from numpy.typing import NDArray

MEMORIES = np.array([1.0, 3.0, 9.0, 27.0, 81.0])
"""In batches; the newest batch weighs one over this."""
GAINS = (1.0 / MEMORIES)[:, None].astype(np.float32)
VIEWS = np.array(
    [
        [1, 0, 0, 0, 0],
        [0, 1, 0, 0, 0],
        [0, 0, 1, 0, 0],
        [0, 0, 0, 1, 0],
        [0, 0, 0, 0, 1],
        [1, 0, -1, 0, 0],
        [0, 1, 0, -1, 0],
        [0, 0, 1, 0, -1],
    ],
    np.float32,
)
LEVELS = 5
"""How many of the views, the first, look at the level against the reference."""
_LARGEST_INFLATION = 1e4


def view_deviations(inflation: NDArray[np.float64], batch_size: int, level_rows: float) -> NDArray[np.float64]:
    """The deviation of each view of columns whose rows have deviation 1, without a change.

    Args:
        inflation: (columns,) variance of a long mean over what independent rows would give, >= 1.
        batch_size: rows a batch.
        level_rows: of how many rows the level is known that the first five views are compared with.

    Returns:
        (8, columns), > 0.

    Source: stationary covariances of exponentially weighted means of batch means of an AR(1) series; to the levels'
        the variance of the level itself is added.
    Cost: O(columns).
    """
    inflation = np.clip(inflation, 1.0, _LARGEST_INFLATION)
    first = (inflation - 1.0) / (inflation + 1.0)  # correlation of neighbouring rows
    decay = first**batch_size
    variance = inflation / batch_size - 2.0 * first * (1.0 - decay) / (batch_size * (1.0 - first)) ** 2
    neighbours = first * ((1.0 - decay) / (batch_size * (1.0 - first))) ** 2 / variance
    kept = 1.0 - 1.0 / MEMORIES
    covariance = np.empty((len(MEMORIES), len(MEMORIES), len(inflation)))
    for one, a in enumerate(kept):
        for two, b in enumerate(kept):
            shared = (1.0 - a) * (1.0 - b) / (1.0 - a * b)
            later = a / (1.0 - decay * a) + b / (1.0 - decay * b)
            covariance[one, two] = shared * variance * (1.0 + neighbours * later)
    views = np.einsum("vi,ijc,vj->vc", VIEWS, covariance, VIEWS)
    views[:LEVELS] += inflation / level_rows
    return np.asarray(np.sqrt(views))
