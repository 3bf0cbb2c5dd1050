import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from server_bridge.cohorts.clustering import AutoKMeans, OneCohortPerClient, average_linkage, complete_linkage


def _blobs(sizes: list[int], spread: float, seed: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    return np.concatenate(
        [10 * np.eye(len(sizes))[i] + spread * rng.normal(size=(n, len(sizes))) for i, n in enumerate(sizes)]
    )


@pytest.mark.parametrize("sizes", [[4, 4], [3, 5, 4], [2, 2, 2, 2]])
def test_clear_groups_are_found(sizes: list[int]) -> None:
    labels = AutoKMeans().fit_predict(_blobs(sizes, 0.3, 0))
    assert labels.tolist() == [i for i, n in enumerate(sizes) for _ in range(n)]


def test_a_weak_silhouette_is_one_group() -> None:
    points = np.random.default_rng(0).normal(size=(20, 18))
    assert set(AutoKMeans().fit_predict(points).tolist()) == {0}


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_too_few_rows_stay_together(rows: int) -> None:
    assert AutoKMeans().fit_predict(np.arange(rows, dtype=float).reshape(rows, 1)).tolist() == [0] * rows


def test_identical_rows_stay_together() -> None:
    assert set(AutoKMeans().fit_predict(np.zeros((6, 2))).tolist()) == {0}


def test_k_can_be_pinned_above_the_rows_there_are() -> None:
    assert AutoKMeans(fixed_k=2).fit_predict([[0.0], [1.0]]).tolist() == [0, 1]
    assert AutoKMeans(fixed_k=5).fit_predict([[0.0], [1.0], [2.0]]).tolist() == [0, 1, 2]


def test_impossible_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="fixed_k"):
        AutoKMeans(fixed_k=0)
    with pytest.raises(ValueError, match="max_k"):
        AutoKMeans(max_k=1)


def test_everybody_alone() -> None:
    assert OneCohortPerClient().fit_predict(np.zeros((3, 2))).tolist() == [0, 1, 2]


def _naive_linkage(distances: NDArray[np.float64], cut: float, complete: bool) -> set[frozenset[int]]:
    groups = [frozenset([i]) for i in range(len(distances))]
    while len(groups) > 1:
        gaps = {
            (a, b): distances[np.ix_(sorted(a), sorted(b))].max()
            if complete
            else distances[np.ix_(sorted(a), sorted(b))].mean()
            for a in groups
            for b in groups
            if min(a) < min(b)
        }
        (a, b), gap = min(gaps.items(), key=lambda item: item[1])
        if gap > cut:
            break
        groups = [g for g in groups if g not in (a, b)] + [a | b]
    return set(groups)


@given(st.integers(0, 2_000), st.floats(0.1, 1.5), st.booleans())
def test_linkage_joins_the_closest_until_the_cut(seed: int, cut: float, complete: bool) -> None:
    half = np.random.default_rng(seed).uniform(0, 2, size=(8, 8))
    distances = np.triu(half, 1) + np.triu(half, 1).T
    labels = (complete_linkage if complete else average_linkage)(distances, cut)
    groups = {frozenset(np.flatnonzero(labels == label).tolist()) for label in set(labels.tolist())}
    assert groups == _naive_linkage(distances, cut, complete)


def test_linkage_of_nobody_and_of_one() -> None:
    assert average_linkage(np.zeros((0, 0)), 1.0).tolist() == []
    assert average_linkage(np.zeros((1, 1)), 1.0).tolist() == [0]
