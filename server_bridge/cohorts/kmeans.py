"""K-means and the silhouette, deterministic by seed."""

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

MAX_STEPS = 300
TOLERANCE = 1e-4  # centres that move by less than this share of the mean variance stand still
Points = NDArray[np.float64]
Labels = NDArray[np.intp]


def kmeans(points: Points, k: int, seed: int, *, starts: int = 10) -> Labels:
    """The best of several runs of Lloyd's algorithm from greedy k-means++ starts.

    Starts are drawn as scikit-learn's KMeans draws them, by which the reference package clusters:
    where several partitions are locally best, a seed means the same one.

    Args:
        points: (n, r) finite, n >= 1.
        k: clusters wanted, 1 <= k <= n; fewer where fewer points are distinct.
        seed: of the starts, 0 to 2^32 - 1.
        starts: runs; the least inertia wins.

    Returns:
        (n,) labels from 0, numbered by first appearance, none empty.

    Source: Lloyd 1982; Arthur and Vassilvitskii 2007, section 5, for the greedy starts.
    Cost: O(starts * steps * n k r).
    """
    k = min(k, np.unique(points, axis=0).shape[0])
    centred = points - points.mean(axis=0)
    draws = np.random.RandomState(seed)
    runs = [_lloyd(centred, _plus_plus(centred, k, draws)) for _ in range(starts)]
    best = min(runs, key=lambda labels: _inertia(centred, labels))
    return by_first_appearance(best)


def silhouette(points: Points, labels: Labels) -> float:
    """The mean silhouette; a point alone in its cluster counts 0.

    Args:
        points: (n, r).
        labels: (n,) of at least two clusters.

    Returns:
        In [-1, 1].

    Source: Rousseeuw 1987.
    Cost: O(n^2 r).
    """
    distances = cdist(points, points)
    clusters = np.unique(labels)
    member = labels[None, :] == clusters[:, None]
    sizes = member.sum(axis=1)
    sums = distances @ member.T
    own = np.searchsorted(clusters, labels)
    rows = np.arange(labels.size)
    inside = sums[rows, own] / np.maximum(sizes[own] - 1, 1)
    means = sums / sizes
    means[rows, own] = np.inf
    outside = means.min(axis=1)
    larger = np.maximum(inside, outside)
    scores = np.divide(outside - inside, larger, out=np.zeros_like(larger), where=larger > 0)
    return float(np.where(sizes[own] > 1, scores, 0.0).mean())


def by_first_appearance(labels: Labels) -> Labels:
    """The same partition (n,) with labels 0, 1, ... in the order of their first rows."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(first.size, np.intp)
    rank[np.argsort(first)] = np.arange(first.size)
    return np.asarray(rank[inverse], np.intp)


def _squared_distances(points: Points, centres: Points) -> Points:
    return np.asarray(cdist(points, centres, "sqeuclidean"), np.float64)


def _nearest(points: Points, centres: Points) -> Labels:
    return np.asarray(_squared_distances(points, centres).argmin(axis=1), np.intp)


def _plus_plus(points: Points, k: int, draws: np.random.RandomState) -> Points:
    """Centres one by one: of a few points drawn by their squared distance, the one that leaves least."""
    rows, trials = points.shape[0], 2 + int(np.log(k))
    chosen = [int(draws.choice(rows, p=np.full(rows, 1 / rows)))]
    nearest = _squared_distances(points, points[chosen])[:, 0]
    while len(chosen) < k:
        if not nearest.sum() > 0:  # what is left differs by less than a square can hold
            break
        drawn = np.searchsorted(np.cumsum(nearest), draws.uniform(size=trials) * nearest.sum())
        tried = np.minimum(drawn, rows - 1)
        left = np.minimum(nearest[:, None], _squared_distances(points, points[tried]))
        best = int(left.sum(axis=0).argmin())
        chosen.append(int(tried[best]))
        nearest = left[:, best]
    return points[chosen]


def _lloyd(points: Points, centres: Points) -> Labels:
    still = TOLERANCE * float(points.var(axis=0).mean())
    labels = _nearest(points, centres)
    for _ in range(MAX_STEPS):
        moved = np.stack([_centre(points, labels, cluster, centres) for cluster in range(len(centres))])
        shift, centres = float(((moved - centres) ** 2).sum()), moved
        renewed = _nearest(points, centres)
        if shift <= still or np.array_equal(renewed, labels):
            return renewed
        labels = renewed
    return labels


def _centre(points: Points, labels: Labels, cluster: int, centres: Points) -> Points:
    mine = points[labels == cluster]
    if mine.size:
        return np.asarray(mine.mean(axis=0), np.float64)
    farthest = int(_squared_distances(points, centres).min(axis=1).argmax())
    return np.asarray(points[farthest], np.float64)


def _inertia(points: Points, labels: Labels) -> float:
    return float(
        sum(
            ((points[labels == cluster] - points[labels == cluster].mean(axis=0)) ** 2).sum()
            for cluster in np.unique(labels)
        )
    )
