"""What kind of shift it is, as far as that can be told."""

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.finding import Finding, ShiftKind

EXPLAINED_LEAST = 0.8
"""Share of the inputs' change that other class shares must explain for it to count as a label shift."""
MOVED_LEAST = 0.1
_ROUNDS = 300


def told_apart(labelled: Finding | None, label_free: Finding | None) -> ShiftKind:
    """What the monitor with labels and the one without say together.

    ``concept``: the losses rose and neither inputs nor outputs changed: the same inputs mean something else now. Where
    both alarm it is what the label-free one says, which a change of concept may stand beside; where only the labelled
    one does and the other one warns, nobody knows.

    Args:
        labelled, label_free: each monitor's latest finding over the same stretch of the stream; None: it gives none.
    """
    if label_free is not None and label_free.alarm:
        return label_free.shift
    if labelled is None or not labelled.alarm:
        return "unknown"
    if label_free is None:
        return "loss"
    return "unknown" if label_free.warning else "concept"


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

    Source: means of a mixture are linear in its shares; least squares on the simplex by projected gradients with
        momentum (Beck and Teboulle 2009).
    Cost: O(300 classes^2 + classes x inputs).
    """
    gram, toward = class_levels @ class_levels.T, class_levels @ change
    size = max(float(np.linalg.norm(gram, 2)), 1e-12)
    now, ahead, pace = shares, shares, 1.0
    for _ in range(_ROUNDS):
        following = _on_simplex(ahead - (gram @ ahead - toward) / size)
        faster = (1.0 + np.sqrt(1.0 + 4.0 * pace**2)) / 2.0
        ahead = following + (pace - 1.0) / faster * (following - now)
        now, pace = following, faster
    rest = change - now @ class_levels
    whole = float(change @ change) - noise
    explained = 1.0 - max(0.0, float(rest @ rest) - noise) / whole if whole > 0 else 0.0
    return now, min(1.0, max(0.0, explained))


def _on_simplex(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The nearest shares (Duchi et al. 2008)."""
    ordered = np.sort(values)[::-1]
    excess = (np.cumsum(ordered) - 1.0) / np.arange(1, len(values) + 1)
    return np.asarray(np.maximum(values - excess[np.flatnonzero(ordered > excess)[-1]], 0.0))
