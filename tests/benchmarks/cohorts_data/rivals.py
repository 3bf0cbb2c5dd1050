"""What our cohorter is measured against, all on the same changes."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.spatial.distance import squareform

from server_bridge.cohorts.cosine import CosineCohorter, cosine_matrix
from server_bridge.cohorts.family_cohorter import FamilyCohorter
from server_bridge.cohorts.gram import gram_matrix
from tests.benchmarks.cohorts_data.drifted import Drifted

Labels = NDArray[np.intp]
BASE_DEVIATION = 0.05
SILHOUETTE_FLOOR = 0.25
# CFL leaves its noise ratio to the user; 0.5 accepts a split below a cosine of 0.5 across.
CFL_NOISE = 0.5


def ours(drifted: Drifted) -> Labels:
    """The family cohorter without any context: changes against the reference."""
    ids = list(range(len(drifted.changes)))
    reference = np.zeros(drifted.changes.shape[1], np.float32)
    return _labels(FamilyCohorter().cohort(ids, drifted.changes, reference).assignments)


def ours_informed(drifted: Drifted) -> Labels:
    """The family cohorter with bases and whatever reliabilities and stable clients there are."""
    ids = list(range(len(drifted.changes)))
    reference = np.zeros(drifted.changes.shape[1], np.float32)
    return _labels(FamilyCohorter().cohort(ids, drifted.changes, reference, context=drifted.context()).assignments)


def fixed_cut(drifted: Drifted) -> Labels:
    """Average linkage on cosines, cut at 0.35."""
    ids = list(range(len(drifted.changes)))
    return _labels(
        CosineCohorter().cohort(ids, drifted.changes, np.zeros(drifted.changes.shape[1], np.float32)).assignments
    )


def reference(drifted: Drifted) -> Labels:
    """The reference package's cohorter, on weights around a base, with the base as its reference.

    Raises:
        ModuleNotFoundError: fed-clma is not installed (`make oracle`).
    """
    from clma import CLMACohorter as ReferenceCohorter

    base = np.asarray(np.random.default_rng(1).normal(0, BASE_DEVIATION, drifted.changes.shape[1]), np.float64)
    ids = list(range(len(drifted.changes)))
    return _labels(ReferenceCohorter().cohort(ids, drifted.changes + base, base).assignments)


def silhouette_cosine(drifted: Drifted) -> Labels:
    """Average linkage on cosines; the number of groups by the silhouette, one group below its floor."""
    distances = 1.0 - cosine_matrix(gram_matrix(drifted.changes))
    count = len(distances)
    best, labels = SILHOUETTE_FLOOR, np.zeros(count, np.intp)
    if count < 3:
        return labels
    tree = linkage(squareform(distances, checks=False), "average")
    for candidate in cut_tree(tree, np.arange(2, min(count, 11))).T:
        score = silhouette(distances, candidate)
        if score >= best:
            best, labels = score, candidate.astype(np.intp)
    return labels


def cfl(drifted: Drifted) -> Labels:
    """Recursive optimal bipartition: cut the weakest edge of the maximum spanning tree while the criterion holds.

    Source: Sattler, Mueller and Samek 2021, Algorithm 1 and the criterion gamma < sqrt((1 - a_cross) / 2).
    """
    cosines = cosine_matrix(gram_matrix(drifted.changes))
    groups, done = [np.arange(len(cosines))], []
    while groups:
        group = groups.pop()
        parts = _bipartition(cosines, group)
        if parts is None:
            done.append(group)
        else:
            groups += parts
    labels = np.zeros(len(cosines), np.intp)
    for number, group in enumerate(done):
        labels[group] = number
    return labels


RIVALS: Mapping[str, Callable[[Drifted], Labels]] = MappingProxyType(
    {
        "ours": ours,
        "ours+context": ours_informed,
        "reference": reference,
        "CFL": cfl,
        "silhouette": silhouette_cosine,
        "cut 0.35": fixed_cut,
    }
)


def _bipartition(cosines: NDArray[np.float64], group: Labels) -> list[Labels] | None:
    if len(group) < 2:
        return None
    among = cosines[np.ix_(group, group)]
    tree = linkage(squareform(1.0 - among, checks=False), "single")
    labels = cut_tree(tree, [2])[:, 0]
    left, right = (np.flatnonzero(labels == side) for side in (0, 1))
    across = float(among[np.ix_(left, right)].max())
    return [group[left], group[right]] if np.sqrt((1.0 - across) / 2.0) > CFL_NOISE else None


def silhouette(distances: NDArray[np.float64], labels: NDArray[np.generic]) -> float:
    """The mean silhouette, client by client; 0 for one by itself (Rousseeuw 1987)."""
    scores = []
    for row, label in enumerate(labels):
        mates = np.flatnonzero((labels == label) & (np.arange(len(labels)) != row))
        if len(mates) == 0:
            scores.append(0.0)
            continue
        inside = distances[row, mates].mean()
        outside = min(distances[row, labels == other].mean() for other in np.unique(labels) if other != label)
        scores.append((outside - inside) / max(inside, outside, 1e-12))
    return float(np.mean(scores))


def _labels(assignments: Mapping[int, int]) -> Labels:
    return np.array([assignments[client] for client in range(len(assignments))], np.intp)
