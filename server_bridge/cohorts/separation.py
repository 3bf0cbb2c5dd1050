"""How far apart groups must be to be other families, beside being told apart by chance."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from server_bridge.cohorts.blocks import Similarities
from server_bridge.cohorts.evidence import Matrix

Group = NDArray[np.intp]
# A scatter of a tenth of the similarity counts as two pairs' worth of experience.
PRIOR_SCATTER, PRIOR_PAIRS = 0.1, 2.0


# What differs by more than so many scatters differs: for groups, and for a single client, whose noise nobody knows.
GROUP_WIDTH, SINGLE_WIDTH = 2.5, 4.0
# Least and largest limits of the relative similarity.
LEAST_GROUPS, LEAST_SINGLE, MOST = 0.5, 0.45, 0.93


@dataclass(frozen=True, slots=True)
class Separation:
    """Groups that are other families.

    Attributes:
        groups: row numbers; one group if nothing is far enough apart.
        relative: the largest relative similarity between two groups; where one group is left, that of
            the last two that were joined.
        limit: what it was held against.
        scatter: relative scatter of the similarities.
    """

    groups: list[Group]
    relative: float
    limit: float
    scatter: float


def limit(scatter: float, smaller: int) -> float:
    """Least relative similarity at which two groups are one family.

    The relative similarity is that across over the geometric mean of those inside: 1 for one
    family whatever the noise.

    Args:
        scatter: relative standard deviation of the similarities about their groups' means.
        smaller: members of the smaller group.
    """
    width, least = (SINGLE_WIDTH, LEAST_SINGLE) if smaller == 1 else (GROUP_WIDTH, LEAST_GROUPS)
    return min(MOST, max(least, 1.0 - width * scatter))


def separate(similar: Similarities, labels: NDArray[np.intp]) -> Separation:
    """Join groups, the most alike first, until all that are left are far enough apart.

    Args:
        similar: the similarities, of exchangeable coordinates.
        labels: (n,) the groups to begin with.
    """
    groups = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    scatter = _scatter(similar, groups)
    nearest = (1.0, 1.0)
    while len(groups) > 1:
        levels = _levels(similar, groups)
        if levels is None:
            groups = [np.sort(np.concatenate(groups))]
            break
        ranked = []
        for a, b in combinations(range(len(groups)), 2):
            relative = _mean(similar, groups[a], groups[b]) / np.sqrt(levels[a] * levels[b])
            allowed = limit(scatter, min(len(groups[a]), len(groups[b])))
            ranked.append((relative - allowed, a, b, relative, allowed))
        margin, a, b, *found = max(ranked)
        nearest = (float(found[0]), float(found[1]))
        if margin < 0:
            break
        joined = np.sort(np.concatenate([groups[a], groups[b]]))
        groups = [group for k, group in enumerate(groups) if k not in (a, b)] + [joined]
    return Separation(groups, nearest[0], nearest[1], scatter)


def mean_inside(similar: Similarities, group: Group) -> tuple[float, float]:
    """Weighted mean similarity of a group's pairs, and the pairs' weight; (0, 0) for fewer than two."""
    if len(group) < 2:
        return 0.0, 0.0
    first, second = (group[i] for i in np.triu_indices(len(group), 1))
    mass = similar.weights[first, second]
    return float((similar.values[first, second] * mass).sum() / mass.sum()), float(mass.sum())


def _levels(similar: Similarities, groups: Sequence[Group]) -> list[float] | None:
    """The level inside each group; a single client's is that of the others. ``None`` if none is positive."""
    inside = [mean_inside(similar, group) for group in groups]
    mass = sum(weight for _, weight in inside)
    if mass == 0:
        return None
    common = sum(mean * weight for mean, weight in inside) / mass
    if common <= 0:
        return None
    return [max((mean * weight + common) / (weight + 1.0), 1e-3 * common) for mean, weight in inside]


def _mean(similar: Similarities, left: Group, right: Group) -> float:
    across = np.ix_(left, right)
    return float((similar.weights[across] * similar.values[across]).sum() / similar.weights[across].sum())


def _scatter(similar: Similarities, groups: Sequence[Group]) -> float:
    """Relative standard deviation of the similarities about their groups' means."""
    squares, freedom = 0.0, 0
    inside = [mean_inside(similar, group) for group in groups]
    mass = sum(weight for _, weight in inside)
    if mass == 0:
        return 1.0
    common = max(sum(mean * weight for mean, weight in inside) / mass, 1e-6)
    for group in groups:
        if len(group) > 2:
            first, second = (group[i] for i in np.triu_indices(len(group), 1))
            part, count = _squares(similar.values[first, second], similar.weights[first, second])
            squares, freedom = squares + part, freedom + count
    for left, right in combinations(groups, 2):
        across = np.ix_(left, right)
        part, count = _squares(similar.values[across], similar.weights[across])
        squares, freedom = squares + part, freedom + count
    prior = PRIOR_PAIRS * (PRIOR_SCATTER * common) ** 2
    return float(np.sqrt((squares + prior) / (freedom + PRIOR_PAIRS)) / common)


def _squares(values: Matrix, weights: Matrix) -> tuple[float, int]:
    mean = (weights * values).sum() / weights.sum()
    return float((weights * np.square(values - mean)).sum()), values.size - 1
