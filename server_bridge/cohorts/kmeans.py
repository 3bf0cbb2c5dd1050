"""K-means and the silhouette, deterministic by seed."""

import numpy as np
from numpy.typing import NDArray

MAX_STEPS = 300
Points = NDArray[np.float64]
Labels = NDArray[np.intp]


def kmeans(points: Points, k: int, rng: np.random.Generator, *, starts: int = 10) -> Labels:
    """The best of several runs of Lloyd's algorithm from k-means++ starts.

    Args:
        points: (n, r) finite, n >= 1.
        k: clusters wanted, 1 <= k <= n; fewer where fewer points are distinct.
        rng: source of the starts.
        starts: runs; the least inertia wins.

    Returns:
        (n,) labels from 0, numbered by first appearance, none empty.

    Cost: O(starts * steps * n k r).
    """
    k = min(k, np.unique(points, axis=0).shape[0])
    runs = [_lloyd(points, _plus_plus(points, k, rng)) for _ in range(starts)]
    best = min(runs, key=lambda labels: _inertia(points, labels))
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
    distances = np.linalg.norm(points[:, None, :] - points[None, :, :], axis=2)
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
    difference = points[:, None, :] - centres[None, :, :]
    return np.asarray((difference**2).sum(axis=2), np.float64)


def _nearest(points: Points, centres: Points) -> Labels:
    return np.asarray(_squared_distances(points, centres).argmin(axis=1), np.intp)


def _plus_plus(points: Points, k: int, rng: np.random.Generator) -> Points:
    chosen = [int(rng.integers(points.shape[0]))]
    while len(chosen) < k:
        nearest = _squared_distances(points, points[chosen]).min(axis=1)
        if not nearest.sum() > 0:  # what is left differs by less than a square can hold
            break
        chosen.append(int(rng.choice(points.shape[0], p=nearest / nearest.sum())))
    return points[chosen]


def _lloyd(points: Points, centres: Points) -> Labels:
    labels = _nearest(points, centres)
    for _ in range(MAX_STEPS):
        centres = np.stack([_centre(points, labels, cluster, centres) for cluster in range(len(centres))])
        renewed = _nearest(points, centres)
        if np.array_equal(renewed, labels):
            break
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
