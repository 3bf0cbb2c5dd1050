"""Inner products of very long rows, in blocks of columns, in float64."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK_COLUMNS = 65_536


def gram_matrix(
    matrix: NDArray[Any], *, origins: Sequence[NDArray[Any]] | None = None, center: bool = False
) -> NDArray[np.float64]:
    """The inner products of all pairs of rows.

    Args:
        matrix: (n, d) a row a client.
        origins: n vectors (d,), subtracted from the rows; may be shared objects.
        center: whether the column means are then subtracted.

    Returns:
        (n, n) float64, symmetric, positive semi-definite up to rounding.

    Cost: O(n^2 d) time, O(n 65,536) memory beside the input.
    """
    rows, columns = matrix.shape
    gram = np.zeros((rows, rows), np.float64)
    for start in range(0, columns, BLOCK_COLUMNS):
        stop = min(start + BLOCK_COLUMNS, columns)
        block = matrix[:, start:stop].astype(np.float64)
        if origins is not None:
            for row, origin in enumerate(origins):
                block[row] -= origin[start:stop]
        if center:
            block -= block.mean(axis=0)
        gram += block @ block.T
    return gram


def distance(left: NDArray[Any], right: NDArray[Any]) -> float:
    """The Euclidean distance of two long vectors (d,), in float64, in blocks."""
    total = 0.0
    for start in range(0, left.size, BLOCK_COLUMNS):
        stop = start + BLOCK_COLUMNS
        difference = left[start:stop].astype(np.float64) - right[start:stop]
        total += float(difference @ difference)
    return float(np.sqrt(total))
