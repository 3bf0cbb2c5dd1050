"""Products of rows that do not depend on how many rows are multiplied together."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def by_batch(rows: NDArray[Any], matrix: NDArray[Any], size: int) -> NDArray[Any]:
    """``rows @ matrix``, ``size`` rows at a time: else a product's last bit depends on how many are in it.

    Args:
        rows: (n, c), n a multiple of ``size``.
        matrix: (c, k) or (c,).

    Cost: O(n c k), and a call of the BLAS for every ``size`` rows.
    """
    if len(rows) == size:
        return np.asarray(rows @ matrix)
    found = rows.reshape(-1, size, rows.shape[1]) @ matrix
    return np.asarray(found.reshape(len(rows), *matrix.shape[1:]))
