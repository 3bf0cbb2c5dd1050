"""Whether clients differ by plain noise: a drift of few parameters alone makes no real net of their changes."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]
# Normal coordinates of 2,000 parameters and more have a kurtosis of 3 +- 0.3 and, with one scale for all blocks, a
# spread of 1 +- 0.25; updates of real nets have a kurtosis of 1.2-2.8 or above 14, and layers of other scales.
KURTOSIS, KURTOSIS_MARGIN, MOST_SPREAD = 3.0, 0.4, 2.5


def is_plain_noise(cosines: Matrix, lengths: NDArray[np.float64], chunks: Iterable[tuple[int, Matrix]]) -> bool:
    """Whether what parts each client from its nearest is normal, with one scale for all parameters.

    A drift that moves few parameters, such as the last layer's, gives the *changes* a high kurtosis
    and blocks of their own, as a real net's updates have. Where two clients drifted alike it cancels
    in their difference, and what is left is noise.

    Args:
        cosines: (n, n) of the changes.
        lengths: (n,) of them.
        chunks: a second pass over them: the number of the block and (n, width) coordinates.

    Cost: O(n d) time, one chunk of memory.
    """
    moved = np.flatnonzero(lengths > 0)
    if len(moved) < 2:
        return False
    others = cosines[np.ix_(moved, moved)] - 3.0 * np.eye(len(moved))
    pairs = {(min(a, b), max(a, b)) for a, b in enumerate(np.argmax(others, 1).tolist())}
    left, right = moved[np.array(sorted(pairs), np.intp).T]
    inverse = 1.0 / np.where(lengths > 0, lengths, 1.0)[:, None]
    powers = np.zeros((4, len(left)))
    blocks: dict[int, NDArray[np.float64]] = {}
    counts: dict[int, int] = {}
    for block, part in chunks:
        noise = part[left] * inverse[left] - part[right] * inverse[right]
        squared = np.square(noise)
        energy = squared.sum(1)
        powers += noise.sum(1), energy, (squared * noise).sum(1), np.square(squared).sum(1)
        blocks[block] = blocks.get(block, np.zeros(len(left))) + energy
        counts[block] = counts.get(block, 0) + part.shape[1]
    differ = powers[1] > 1e-12
    if not differ.any():
        return False
    sizes = np.array([counts[block] for block in blocks], np.float64)
    kurtosis = central_kurtosis(powers[:, differ] / sizes.sum())
    spread = _spread(np.stack([blocks[block][differ] for block in blocks]), sizes)
    return bool(np.median(np.abs(kurtosis - KURTOSIS)) <= KURTOSIS_MARGIN and np.median(spread) <= MOST_SPREAD)


def central_kurtosis(moments: Matrix) -> NDArray[np.float64]:
    """From the (4, n) mean powers; 3 where nothing varies."""
    first, second, third, fourth = moments
    variance = second - np.square(first)
    central = fourth - 4.0 * first * third + 6.0 * np.square(first) * second - 3.0 * first**4
    flat = variance <= 1e-12 * second
    return np.asarray(np.where(flat, 3.0, central / np.square(np.where(flat, 1.0, variance))), np.float64)


def _spread(energies: Matrix, sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) variance of the blocks' mean energy over that of equal normal noise: 1 if there is one scale."""
    relative = energies / energies.sum(0) * (sizes.sum() / sizes)[:, None]
    return np.asarray((np.square(relative - 1.0) * sizes[:, None]).mean(0) / 2.0, np.float64)
