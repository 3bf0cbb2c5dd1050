"""Families that one layer of a net tells apart."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from server_bridge.cohorts.division import Sides
from server_bridge.cohorts.evidence import Matrix
from server_bridge.cohorts.layers import LEAST_CLIENTS
from server_bridge.cohorts.net_families import Divided, best_division

# How far a layer's score must lie below the limit of all coordinates, and its levels apart by their own scatter. Turned
# labels of images: 0.62-0.79 and 8-12. Of identical drifts of gas clients and digits one in some 1,000 layers reaches
# both (broken readings); the next have 0.47 and 4.6, 0.30 and 4.3.
MARGIN, LEAST_SCATTERS = 0.3, 5.0


@dataclass(frozen=True, slots=True)
class DividedByLayer:
    """Two groups that are other families, and the number of the layer that shows it."""

    divided: Divided
    layer: int


def divide_by_layer(layers: Sequence[Matrix], reliability: NDArray[np.float64] | None) -> DividedByLayer | None:
    """The division that a layer shows best; ``None`` if none shows enough.

    A drift in what labels mean shows in the last layer, one of a sensor in the first; the cosine of
    all coordinates mixes that with what all clients share elsewhere. A layer is one of several, and
    of few coordinates: so its groups must lie far beyond the limit and beyond the scatter of its own
    cosines, and have at least half of the least clients each.

    Args:
        layers: (n, n) cosines each.
        reliability: (n,) share of each change that is not noise; ``None`` if not known.
    """
    found, best = None, 0.0
    for number, cosines in enumerate(layers):
        if len(cosines) < LEAST_CLIENTS:
            continue
        margin, divided = best_division(cosines, reliability, LEAST_CLIENTS // 2, MARGIN)
        if divided is not None and margin > best and scatters(cosines, divided.sides) >= LEAST_SCATTERS:
            found, best = DividedByLayer(divided, number), margin
    return found


def scatters(cosines: Matrix, sides: Sides) -> float:
    """By how many standard deviations about their own levels the cosines inside two groups exceed those across."""
    left, right = (cosines[np.ix_(side, side)][np.triu_indices(side.sum(), 1)] for side in (~sides, sides))
    across = cosines[np.ix_(~sides, sides)].ravel()
    squares = sum(float(np.square(values - values.mean()).sum()) for values in (left, right, across))
    deviation = np.sqrt(squares / (len(left) + len(right) + len(across) - 3))
    return float(((left.mean() + right.mean()) / 2.0 - across.mean()) / max(deviation, 1e-12))
