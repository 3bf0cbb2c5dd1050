"""Fed-ADE's S_unc and S_rep: how far the mean class probabilities and the mean direction of the embeddings turned.

Each against the batch before (sudden) and against the reference (slow), and the mean of the last nine batches against
the reference; as published, one minus a cosine, S_rep halved. Under no change they are not 0, the more the smaller a
batch: like the other statistics they are judged by what they are without a change.

Source: Park et al. 2026 (Fed-ADE), S_unc and S_rep.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

MEMORY_GAIN = np.float32(1.0 / 9.0)
COMPARISONS = 3
_TINY = 1e-24


def turns(
    now: NDArray[Any], before: NDArray[Any], slow: NDArray[Any], reference: NDArray[Any], shares: int
) -> NDArray[np.float32]:
    """The signals of (..., shares + directions) mean vectors.

    Args:
        now, before: means of this batch and of the one before; all zero: there was none, and the signal is 0.
        slow: the mean of the last nine.
        reference: (shares + directions,) or as the others.
        shares: how many of the values are class shares; the rest is a direction.

    Returns:
        (..., 3 signals of each that there is): now to before, now to the reference, slow to the reference.

    Cost: O(shares + directions).
    """
    borders = [place for place, size in ((0, shares), (shares, now.shape[-1] - shares)) if size]
    if not borders:
        return np.zeros((*now.shape[:-1], 0), np.float32)
    reference = np.broadcast_to(reference, now.shape)
    left = np.stack([now, now, slow], axis=-2)
    right = np.stack([before, reference, reference], axis=-2)
    products = np.add.reduceat(np.stack([left * right, left * left, right * right], axis=-3), borders, axis=-1)
    across, first, second = products[..., 0, :, :], products[..., 1, :, :], products[..., 2, :, :]
    lengths = first * second
    cosine = np.where(lengths > _TINY, across / np.sqrt(np.maximum(lengths, _TINY)), 1.0)
    halved = np.array([1.0 if place < shares else 0.5 for place in borders], np.float32)
    found = np.maximum(1.0 - cosine, 0.0) * halved
    return np.asarray(found.reshape(*now.shape[:-1], -1), np.float32)
