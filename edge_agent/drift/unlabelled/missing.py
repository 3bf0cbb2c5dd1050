"""Rows with missing readings, so that what is missing looks like nothing new."""

import numpy as np
from numpy.typing import NDArray


def completed(
    scores: NDArray[np.float32], missing: NDArray[np.bool_], precision: NDArray[np.float64]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Normal scores with each missing one replaced by what the others of its row lead to expect.

    Args:
        scores: (n, c); what is missing is not read.
        missing: (n, c).
        precision: (c, c) inverse covariance of the scores, positive definite.

    Returns:
        (n, c) completed scores; and (n, c) how much smaller than 1 the variance of each standardised conditional score
        (``precision @ score / sqrt(diagonal)``) becomes by that.

    Source: conditional mean and covariance of a normal vector, by its precision matrix (Lauritzen 1996, 5.1).
    Cost: O(patterns c^3), patterns being the different rows of ``missing``.
    """
    full = np.where(missing, np.float32(0), scores)
    lost = np.zeros(full.shape, np.float32)
    patterns, which = np.unique(missing, axis=0, return_inverse=True)
    for number, pattern in enumerate(patterns):
        if not pattern.any():
            continue
        rows = which.ravel() == number
        block = precision[np.ix_(pattern, pattern)]
        full[np.ix_(rows, pattern)] = -np.linalg.solve(block, precision[pattern] @ full[rows].T).T
        spread = np.linalg.solve(block, precision[pattern])
        lost[rows] = (np.einsum("mk,mk->k", precision[pattern], spread) / np.diag(precision)).astype(np.float32)
    return full, lost
