"""Where inside a batch did the losses rise?"""

import numpy as np
from numpy.typing import NDArray


def change_index(losses: NDArray[np.float64], before: float) -> int:
    """The most likely first index of the raised segment of a batch that made a monitor fire.

    The batch is split at the k that makes ``sum_{i<k} (midpoint - losses_i)`` largest, the
    midpoint lying half-way between the level before and the batch's upper half.

    Args:
        losses: (n,) float64, in the order in which the samples were taken; n >= 1.
        before: the mean loss before this batch.

    Returns:
        k in 0..n-1; 0 when the whole batch is raised.

    Source: the maximum-likelihood change point for two known means of equal variance
        (Page 1954); the means are estimates here.
    Cost: O(n log n).
    """
    finite = np.nan_to_num(np.asarray(losses, np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    upper = float(np.sort(finite)[finite.size // 2 :].mean())
    midpoint = (before + upper) / 2
    gains = np.concatenate(([0.0], np.cumsum(midpoint - finite)))[: finite.size]
    return int(np.argmax(gains))
