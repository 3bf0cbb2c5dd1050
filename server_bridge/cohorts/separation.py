"""How far apart groups must be to be other families, beside being told apart by chance."""

from abc import ABC, abstractmethod
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


class Tolerance(ABC):
    """Least relative similarity at which two groups are one family.

    The relative similarity is that across over the geometric mean of those inside: 1 for one
    family whatever the noise.
    """

    @abstractmethod
    def limit(self, scatter: float, smaller: int) -> float:
        """The least relative similarity.

        Args:
            scatter: relative standard deviation of the similarities about their groups' means.
            smaller: members of the smaller group; nobody knows a single client's own noise.
        """


@dataclass(frozen=True, slots=True)
class ScatterTolerance(Tolerance):
    """Among exchangeable coordinates what differs by more than the scatter differs: ``1 - width * scatter``.

    Attributes:
        groups, single: widths, for groups and for a single client.
        least_groups, least_single: least limits.
        most: largest limit.
    """

    groups: float = 2.5
    single: float = 4.0
    least_groups: float = 0.5
    least_single: float = 0.45
    most: float = 0.93

    def limit(self, scatter: float, smaller: int) -> float:
        """See :class:`Tolerance`."""
        width, least = (self.single, self.least_single) if smaller == 1 else (self.groups, self.least_groups)
        return min(self.most, max(least, 1.0 - width * scatter))


@dataclass(frozen=True, slots=True)
class RealTolerance(Tolerance):
    """Among updates of real nets members of one family differ too: ``most - selection / smaller``.

    The fewer members, the more their likeness was why they were put together. Measured within one
    remount or batch, the best split of 4 clients had 0.62 and more between groups, of 8 clients
    0.70 and more; between families 0.25 to 0.72.

    Attributes:
        single: the limit for a single client; minus infinity never parts one.
        most, selection: see above.
    """

    single: float
    most: float = 0.8
    selection: float = 0.4
    cap: float = 0.75

    def limit(self, scatter: float, smaller: int) -> float:
        """See :class:`Tolerance`."""
        return self.single if smaller == 1 else min(self.cap, self.most - self.selection / smaller)


EXACT = ScatterTolerance()
REAL = RealTolerance(single=0.5)
REAL_UNSURE = RealTolerance(single=0.4)
REAL_GROUPS = RealTolerance(single=-np.inf)


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


def separate(
    similar: Similarities, labels: NDArray[np.intp], tolerance: Tolerance, *, errors: float = 0.0
) -> Separation:
    """Join groups, the most alike first, until all that are left are far enough apart.

    Args:
        similar: the similarities.
        labels: (n,) the groups to begin with.
        tolerance: how far is far enough.
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
            limit = tolerance.limit(scatter, min(len(groups[a]), len(groups[b])))
            ranked.append((relative - limit, a, b, relative, limit))
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
