from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from server_bridge.cohorts.kmeans import by_first_appearance, kmeans, silhouette

Points = NDArray[np.float64]


def _inertia(points: Points, labels: NDArray[np.intp]) -> float:
    groups = [points[labels == label] for label in np.unique(labels)]
    return float(sum(((group - group.mean(axis=0)) ** 2).sum() for group in groups))


@pytest.mark.parametrize(("k", "seeds"), [(2, 100), (3, 10)])
def test_few_points_are_nearly_always_parted_in_the_best_of_all_ways(k: int, seeds: int) -> None:
    """Lloyd's algorithm may end in a partition that is only locally the best, whatever its starts."""
    everything = [np.array(labels) for labels in product(range(k), repeat=7) if len(set(labels)) == k]
    missed = 0
    for seed in range(seeds):
        points = np.random.default_rng(seed).normal(size=(7, 2))
        best = min(_inertia(points, labels) for labels in everything)
        missed += _inertia(points, kmeans(points, k, 0, starts=30)) > best * (1 + 1e-9)
    assert missed <= seeds // 50


@pytest.mark.reference
@given(st.integers(0, 100_000), st.integers(1, 6), st.integers(6, 60), st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_the_partition_is_that_of_scikit_learn(seed: int, k: int, rows: int, columns: int) -> None:
    from sklearn.cluster import KMeans

    points = np.random.default_rng(seed).normal(size=(rows, columns))
    expected = KMeans(k, n_init=5, random_state=seed).fit(points).labels_
    assert kmeans(points, k, seed, starts=5).tolist() == by_first_appearance(expected).tolist()


def test_the_same_seed_gives_the_same_labels_from_zero() -> None:
    points = np.random.default_rng(1).normal(size=(40, 3))
    first, second = (kmeans(points, 5, 9) for _ in range(2))
    assert first.tolist() == second.tolist()
    assert sorted(set(first.tolist())) == list(range(5))
    assert first[0] == 0


def test_fewer_distinct_points_give_fewer_clusters() -> None:
    assert set(kmeans(np.array([[1.0], [1.0], [2.0]]), 3, 0).tolist()) == {0, 1}


def test_points_too_close_for_a_square_end() -> None:
    points = np.array([[0.0], [1e-200], [2e-200]])
    assert kmeans(points, 3, 0).shape == (3,)


def _naive_silhouette(points: Points, labels: NDArray[np.intp]) -> float:
    scores = []
    for i, point in enumerate(points):
        gaps = [float(np.linalg.norm(point - other)) for other in points]
        mine = [gaps[j] for j in range(len(points)) if labels[j] == labels[i] and j != i]
        if not mine:
            scores.append(0.0)
            continue
        inside = sum(mine) / len(mine)
        outside = min(
            float(np.mean([gaps[j] for j in range(len(points)) if labels[j] == label]))
            for label in set(labels.tolist()) - {labels[i]}
        )
        scores.append((outside - inside) / max(outside, inside) if max(outside, inside) > 0 else 0.0)
    return sum(scores) / len(scores)


@given(st.integers(0, 1_000))
def test_the_silhouette_is_rousseeuws(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points, labels = rng.normal(size=(9, 2)), np.concatenate([[0, 1], rng.integers(0, 3, 7)])
    assert silhouette(points, labels) == pytest.approx(_naive_silhouette(points, labels))


def test_labels_are_numbered_by_first_appearance() -> None:
    assert by_first_appearance(np.array([5, 5, 2, 9, 2])).tolist() == [0, 0, 1, 2, 1]
