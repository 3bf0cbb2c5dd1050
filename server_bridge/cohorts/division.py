"""Ways to divide clients in two, and how far apart the two lie."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.spatial.distance import squareform

from server_bridge.cohorts.evidence import Matrix

Method = Literal["average", "complete"]
Sides = NDArray[np.bool_]
MOST_BRANCHES = 4
MOST_REASSIGNMENTS = 10
LEAST_INSIDE = 1e-3


@dataclass(frozen=True, slots=True)
class Gap:
    """How far apart two groups lie.

    Attributes:
        relative: similarity across over the geometric mean of those inside; a single client's inside is the other's.
        silhouette: mean silhouette of all clients by the centred similarities, in [-1, 1].
    """

    relative: float
    silhouette: float


def centred(cosines: Matrix) -> Matrix:
    """Cosines of the changes less their mean: what all share no longer hides what parts them.

    Args:
        cosines: (n, n) of unit vectors.
    """
    shifted = cosines - cosines.mean(0)[:, None] - cosines.mean(1)[None, :] + cosines.mean()
    lengths = np.sqrt(np.clip(np.diag(shifted), 1e-12, None))
    unit = np.clip(shifted / np.outer(lengths, lengths), -1.0, 1.0)
    np.fill_diagonal(unit, 1.0)
    return np.asarray(unit, np.float64)


def divisions(cosines: Matrix) -> list[Sides]:
    """Candidate divisions of n >= 3 clients in two, all different; true is the side without the first client.

    Branches of the average- and complete-linkage trees of the centred cosines against all
    others, the sign of these cosines' leading direction, each also with every client moved to
    the side that it is more like, and the two branches of the plain cosines' tree.
    """
    apart = centred(cosines)
    found = [np.linalg.eigh(apart)[1][:, -1] > 0]
    methods: tuple[Method, ...] = ("average", "complete")
    for method in methods:
        found += _branches(apart, method)
    found += [_settled(apart, sides) for sides in found if sides.any() and not sides.all()]
    found.append(_cut(cosines, "average", [2])[:, 0] > 0)
    unique = {(sides != sides[0]).tobytes(): sides != sides[0] for sides in found}
    return [sides for sides in unique.values() if sides.any()]


def partitions(cosines: Matrix, most: int) -> list[list[NDArray[np.intp]]]:
    """The levels of both trees of the centred cosines with 3 to ``most`` groups, as groups of row numbers."""
    apart, counts = centred(cosines), np.arange(3, min(most, len(cosines) - 1) + 1)
    methods: tuple[Method, ...] = ("average", "complete")
    return [
        [np.flatnonzero(labels == label) for label in np.unique(labels)]
        for method in methods
        for labels in _cut(apart, method, counts).T
    ]


def gap(cosines: Matrix, apart: Matrix, sides: Sides) -> Gap:
    """How far apart the two sides lie.

    Args:
        cosines: (n, n), n >= 3.
        apart: their :func:`centred` form.
        sides: (n,) neither all true nor all false.
    """
    inside = [_mean_inside(cosines, np.flatnonzero(side)) for side in (sides, ~sides)]
    levels = [max(level, LEAST_INSIDE) for level in inside if level is not None]
    across = float(cosines[np.ix_(sides, ~sides)].mean())
    return Gap(across / float(np.exp(np.mean(np.log(levels)))), _silhouette(1.0 - apart, sides))


def _branches(apart: Matrix, method: Method) -> list[Sides]:
    counts = np.arange(2, min(MOST_BRANCHES, len(apart) - 1) + 1)
    cuts = _cut(apart, method, counts)
    branches = [cuts[:, 0] > 0]
    for labels in cuts.T[1:]:
        branches += [labels == label for label in np.unique(labels) if np.count_nonzero(labels == label) > 1]
    return branches


def _cut(cosines: Matrix, method: Method, counts: NDArray[np.intp] | list[int]) -> NDArray[np.intp]:
    distances = 1.0 - cosines
    np.fill_diagonal(distances, 0.0)
    tree = linkage(squareform((distances + distances.T) / 2.0, checks=False), method)
    return np.asarray(cut_tree(tree, counts), np.intp)


def _settled(apart: Matrix, sides: Sides) -> Sides:
    """The sides once every client has moved to the one that it is more like; a client by itself stays."""
    for _ in range(MOST_REASSIGNMENTS):
        likeness = []
        for side in (~sides, sides):
            others = side.sum() - side
            likeness.append((apart[:, side].sum(1) - side) / np.maximum(others, 1))
        moved = likeness[1] > likeness[0]
        for side in (sides, ~sides):
            if side.sum() == 1:
                moved[side] = sides[side]
        if moved.all() or not moved.any() or (moved == sides).all():
            break
        sides = moved
    return sides


def _mean_inside(cosines: Matrix, rows: NDArray[np.intp]) -> float | None:
    if len(rows) < 2:
        return None
    return float((cosines[np.ix_(rows, rows)].sum() - len(rows)) / (len(rows) * (len(rows) - 1)))


def _silhouette(distances: Matrix, sides: Sides) -> float:
    total = 0.0
    for side in (sides, ~sides):
        if side.sum() < 2:
            continue
        own = distances[np.ix_(side, side)].sum(1) / (side.sum() - 1)
        other = distances[np.ix_(side, ~side)].mean(1)
        total += float(((other - own) / np.maximum(np.maximum(own, other), 1e-12)).sum())
    return total / len(sides)
