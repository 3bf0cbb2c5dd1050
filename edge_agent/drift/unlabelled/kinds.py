"""What kind of shift it is, as far as that can be told."""

import numpy as np
from numpy.typing import NDArray

EXPLAINED_LEAST = 0.8
"""Share of the inputs' change that other class shares must explain for it to count as a label shift."""
MOVED_LEAST = 0.1
_STEADY = 1e-9


def moved_shares(
    change: NDArray[np.float64], class_levels: NDArray[np.float64], shares: NDArray[np.float64], noise: float
) -> tuple[NDArray[np.float64], float]:
    """The class shares that explain a change of mean scores best, and how much of it they explain.

    Args:
        change: (inputs,) from the level of the reference, standardised.
        class_levels: (classes, inputs) the classes' own levels on the same scale.
        shares: (classes,) of the reference.
        noise: squared length that ``change`` would have without a change.

    Returns:
        (classes,) shares >= 0 of sum 1; and the share of ``change``'s squared length, less noise, in [0, 1].

    Source: means of a mixture are linear in its shares; least squares on the simplex, a class whose share would be
        negative left out, the most negative first.
    Cost: O(classes^4) at most, mostly O(classes^3).
    """
    gram, toward = class_levels @ class_levels.T, class_levels @ change
    active = np.flatnonzero(shares > 0)
    now = np.zeros(len(shares))
    while len(active):
        found = _summing_to_one(gram[np.ix_(active, active)], toward[active])
        if found.min() >= 0:
            now[active] = found
            break
        active = np.delete(active, int(np.argmin(found)))
    rest = change - now @ class_levels
    whole = float(change @ change) - noise
    explained = 1.0 - max(0.0, float(rest @ rest) - noise) / whole if whole > 0 else 0.0
    return now, min(1.0, max(0.0, explained))


def _summing_to_one(gram: NDArray[np.float64], toward: NDArray[np.float64]) -> NDArray[np.float64]:
    """The least-squares shares of sum 1, some perhaps negative."""
    size = len(toward)
    steadied = gram + (_STEADY * np.trace(gram) / size + 1e-12) * np.eye(size)
    both = np.linalg.solve(steadied, np.column_stack([toward, np.ones(size)]))
    return np.asarray(both[:, 0] + both[:, 1] * (1.0 - both[:, 0].sum()) / both[:, 1].sum())
