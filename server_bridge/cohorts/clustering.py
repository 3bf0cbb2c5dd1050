"""How scores become groups."""

from abc import ABC, abstractmethod
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from server_bridge.cohorts.kmeans import Labels, by_first_appearance, kmeans, silhouette


class Clusterer(ABC):
    """Assigns rows of scores to groups."""

    @abstractmethod
    def fit_predict(self, scores: ArrayLike) -> Labels:
        """A group label from 0 for each row of (n, r) scores."""


class AutoKMeans(Clusterer):
    """K-means with k by the silhouette.

    Two rows stay together (the silhouette needs three) unless ``fixed_k`` says otherwise.

    Args:
        fixed_k: pins k.
        max_k: the most groups tried.
        min_silhouette: below it everything is one group.
        random_state: seed of the starts; the same as in the reference package.

    Raises:
        ValueError: ``fixed_k`` below 1 or ``max_k`` below 2.

    Source: N L et al. 2024, Algorithm 3 lines 16-17; k is ours, the paper does not say.
    """

    def __init__(
        self,
        fixed_k: int | None = None,
        max_k: int = 10,
        min_silhouette: float = 0.25,
        random_state: int = 0,
    ) -> None:
        if fixed_k is not None and fixed_k < 1:
            raise ValueError(f"fixed_k must be at least 1, not {fixed_k}")
        if max_k < 2:
            raise ValueError(f"max_k must be at least 2, not {max_k}")
        self.fixed_k = fixed_k
        self.max_k = max_k
        self.min_silhouette = min_silhouette
        self.random_state = random_state

    def fit_predict(self, scores: ArrayLike) -> Labels:
        """A group label from 0 for each row of (n, r) finite scores."""
        points = np.asarray(scores, np.float64)
        rows = points.shape[0]
        if rows == 0:
            return np.zeros(0, np.intp)
        if self.fixed_k is not None:
            return self._split(points, min(self.fixed_k, rows))
        splits = [self._split(points, k) for k in range(2, min(self.max_k, rows - 1) + 1)]
        scored = [(silhouette(points, labels), labels) for labels in splits if labels.max() > 0]
        best = max(scored, key=lambda pair: pair[0], default=None)
        if best is None or best[0] < self.min_silhouette:
            return np.zeros(rows, np.intp)
        return best[1]

    def _split(self, points: NDArray[np.float64], k: int) -> Labels:
        return kmeans(points, k, self.random_state)


class OneCohortPerClient(Clusterer):
    """Every row by itself: nobody can harm anybody."""

    def fit_predict(self, scores: ArrayLike) -> Labels:
        """Labels 0 to n - 1."""
        return np.arange(np.asarray(scores).shape[0], dtype=np.intp)


def average_linkage(distances: NDArray[np.float64], cut: float) -> Labels:
    """Groups whose mean distance, when joined, is at most the cut (UPGMA).

    Args:
        distances: (n, n) symmetric, zero diagonal.
        cut: the largest mean distance at which two groups join.

    Returns:
        (n,) labels from 0 by first appearance.

    Source: Sokal and Michener 1958. Cost: O(n^2).
    """
    return _linkage(distances, cut, "average")


def complete_linkage(distances: NDArray[np.float64], cut: float) -> Labels:
    """Groups in which every pair is at most the cut apart; arguments as :func:`average_linkage`."""
    return _linkage(distances, cut, "complete")


def _linkage(distances: NDArray[np.float64], cut: float, method: Literal["average", "complete"]) -> Labels:
    rows = distances.shape[0]
    if rows < 2:
        return np.zeros(rows, np.intp)
    tree = linkage(squareform(distances, checks=False), method=method)
    return by_first_appearance(fcluster(tree, cut, criterion="distance").astype(np.intp))
