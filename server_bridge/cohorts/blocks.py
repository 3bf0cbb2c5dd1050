"""Similarities as blocks: one level inside each group, one across all."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import cut_tree, linkage

from server_bridge.cohorts.evidence import Matrix

MOST_GROUPS = 30


@dataclass(frozen=True, slots=True)
class Similarities:
    """Similarities of n changes, with weights.

    Attributes:
        values: (n, n) cosines over the roots of both reliabilities; plain cosines without these.
        weights: (n, n) inverse variances up to a factor, mean 1 over pairs.
        floor: (n, n) least variance of each value: that of chance.
        reliability: (n,) share of each change's energy that is not noise; ones if not known.
    """

    values: Matrix
    weights: Matrix
    floor: Matrix
    reliability: NDArray[np.float64]

    @classmethod
    def of(cls, cosines: Matrix, chance_errors: Matrix, reliability: NDArray[np.float64]) -> "Similarities":
        """Disattenuated similarities; the less reliable a pair, the less it weighs."""
        share = np.sqrt(np.outer(reliability, reliability))
        weights = np.square(share)
        pairs = np.triu_indices(len(cosines), 1)
        weights = weights / weights[pairs].mean() if len(pairs[0]) else weights
        return cls(cosines / share, weights, np.square(chance_errors / share), reliability)


@dataclass(frozen=True, slots=True)
class Split:
    """Groups, and by how much they fit better than one.

    Attributes:
        gain: log-likelihood ratio less its penalty; 0 if one group fits best.
        labels: (n,) group numbers; ``None`` for one group.
    """

    gain: float
    labels: NDArray[np.intp] | None


def best_split(similar: Similarities) -> Split:
    """The level of the average-linkage tree that explains the similarities best.

    At each level: a value per group of two and more (drawn to their common mean with the weight
    of one pair) and one value across all groups, normal residuals of one unknown variance that
    is at least chance's. The gain is half the pairs times the log of the ratio of residual
    variances, less half a log of the pairs for every group of two and more (Schwarz 1978).

    Cost: O(n^2) a level, at most 30 levels.
    """
    count = len(similar.values)
    if count < 3:
        return Split(0.0, None)
    pairs = np.triu_indices(count, 1)
    values, weights = similar.values[pairs], similar.weights[pairs]
    floor = float((weights * similar.floor[pairs]).sum())
    whole = float((weights * np.square(values - np.average(values, weights=weights))).sum())
    tree = linkage(values.max() - values, "average")
    levels = cut_tree(tree, np.arange(2, min(count, MOST_GROUPS + 1)))
    best = Split(0.0, None)
    for labels in levels.T:
        residual, groups = _residual(labels, pairs, values, weights)
        if not np.isfinite(residual):
            continue
        ratio = (whole + floor) / (residual + floor)
        gain = 0.5 * len(values) * np.log(ratio) - 0.5 * np.log(len(values)) * groups
        if gain > best.gain:
            best = Split(float(gain), labels.astype(np.intp))
    return best


def _residual(
    labels: NDArray[np.intp],
    pairs: tuple[NDArray[np.intp], NDArray[np.intp]],
    values: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> tuple[float, int]:
    within = labels[pairs[0]] == labels[pairs[1]]
    if not within.any() or within.all():
        return np.inf, 0
    group = labels[pairs[0]][within]
    mass = np.bincount(group, weights[within])
    total = np.bincount(group, weights[within] * values[within])
    common = total.sum() / mass.sum()
    across = np.average(values[~within], weights=weights[~within])
    if common <= across:
        return np.inf, 0
    means = (total + common) / (mass + 1.0)
    inside = float((weights[within] * np.square(values[within] - means[group])).sum())
    outside = float((weights[~within] * np.square(values[~within] - across)).sum())
    return inside + outside, int(np.count_nonzero(mass))
