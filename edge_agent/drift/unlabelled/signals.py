"""Fed-ADE's S_unc and S_rep: how far the mean class probabilities and the mean direction of the embeddings turned.

Each against the batch before (sudden) and against the reference (slow), and the mean of the last nine batches against
the reference; as published, one minus a cosine, S_rep halved. Under no change they are not 0, the more the smaller a
batch: like the other statistics they are judged by what they are without a change.

Source: Park et al. 2026 (Fed-ADE), S_unc and S_rep.
"""

import numpy as np
from numpy.typing import NDArray

MEMORY_GAIN = np.float32(1.0 / 9.0)
COMPARISONS = 3
BEFORE, SLOW, LEVEL = 0, 1, 2
"""Rows of what is remembered: the batch before, the mean of the last nine, and the level."""
# In the flat products of (now, before, slow, level): three pairs, the squares of their firsts, and of their seconds.
_PLACES = np.array([1, 3, 11, 0, 0, 10, 5, 15, 15])
_TINY = 1e-24
_COUNT = 4


def remembered(signals: NDArray[np.float32], now: NDArray[np.float32]) -> NDArray[np.float32]:
    """(..., 4, shares + directions): the vectors of this batch, the batch before, the last nine and the level.

    Args:
        signals: (..., 3, shares + directions) as remembered before this batch.
        now: (..., shares + directions).
    """
    vectors = np.empty((*signals.shape[:-2], _COUNT, signals.shape[-1]), np.float32)
    vectors[..., 0, :] = now
    vectors[..., 1:, :] = signals
    slow = vectors[..., 1 + SLOW, :]
    slow += MEMORY_GAIN * (now - slow)
    return vectors


def together(signals: NDArray[np.float32], now: NDArray[np.float32], slow: NDArray[np.float32]) -> NDArray[np.float32]:
    """(g, 4, shares + directions): :func:`remembered` for each of g batches in turn.

    Args:
        signals: (3, shares + directions) as remembered before the first.
        now, slow: (g, shares + directions) of each, and the mean of the last nine after each.
    """
    vectors = np.empty((len(now), _COUNT, now.shape[1]), np.float32)
    vectors[:, 0] = now
    vectors[0, 1 + BEFORE] = signals[BEFORE]
    vectors[1:, 1 + BEFORE] = now[:-1]
    vectors[:, 1 + SLOW] = slow
    vectors[:, 1 + LEVEL] = signals[LEVEL]
    return vectors


def turn_spreads(mean: NDArray[np.float64], variance: NDArray[np.float64], shares: int) -> NDArray[np.float64]:
    """(1 or 2,) variance over the squared length of the mean, of shares and of directions: signals grow with it."""
    parts = [part for part in (slice(0, shares), slice(shares, len(mean))) if len(mean[part])]
    return np.array([variance[part].sum() / max(float(np.square(mean[part]).sum()), 1e-12) for part in parts])


def turns(vectors: NDArray[np.float32], shares: int) -> NDArray[np.float32]:
    """The signals of (..., 4, shares + directions) vectors, as :func:`remembered` orders them.

    Args:
        shares: how many of the values are class shares; the rest is a direction. A vector of zeros has no angle: 0.

    Returns:
        (..., 3 for each of shares and direction that there is): now to before, now to the level, slow to the level.

    Cost: O(shares + directions).
    """
    sizes = [size for size in (shares, vectors.shape[-1] - shares) if size]
    if not sizes:
        return np.zeros((*vectors.shape[:-2], 0), np.float32)
    # of nearly the same vectors: one less a cosine would be rounding error
    exact = vectors.astype(np.float64)
    parts = [exact[..., :shares], exact[..., shares:]] if len(sizes) == 2 else [exact]
    products = np.empty((*vectors.shape[:-2], len(parts), _COUNT, _COUNT))
    for place, part in enumerate(parts):
        np.matmul(part, part.swapaxes(-1, -2), out=products[..., place, :, :])
    chosen = products.reshape(*products.shape[:-2], _COUNT * _COUNT).take(_PLACES, axis=-1)
    lengths = chosen[..., 3:6] * chosen[..., 6:]
    turned = 1.0 - chosen[..., :3] / np.sqrt(np.maximum(lengths, _TINY))
    np.maximum(turned, 0.0, out=turned)
    turned *= lengths > _TINY
    if vectors.shape[-1] > shares:
        turned[..., -1, :] *= 0.5
    return np.asarray(turned.reshape(*vectors.shape[:-2], -1), np.float32)
