from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from server_bridge.cohorts.clustering import AutoKMeans, OneCohortPerClient
from server_bridge.cohorts.cohorter import CLMACohorter, check_clients, number_groups
from server_bridge.cohorts.signed_ks import signed_ks_statistic

REFERENCE = np.random.default_rng(0).normal(size=400)


def _shifted(families: Sequence[Sequence[float]], noise: float, seed: int) -> NDArray[np.float64]:
    """A row a client: the reference, moved by (offset of the first half, of the second)."""
    rng = np.random.default_rng(seed)
    shifts = [np.repeat(shift, 200) for shift in families]
    return np.stack([REFERENCE + shift + noise * rng.normal(size=400) for shift in shifts])


def test_directions_are_parted_by_the_sign_and_groups_by_the_clusterer() -> None:
    matrix = _shifted([[-3, 0]] * 3 + [[0, -3]] * 3 + [[3, 3]] * 3, 0.05, 1)
    result = CLMACohorter().cohort(range(9), matrix, REFERENCE)
    assert [result.assignments[i] for i in range(9)] == [0] * 3 + [1] * 3 + [2] * 3
    assert (result.positive_group, result.negative_group) == ([0, 1, 2, 3, 4, 5], [6, 7, 8])
    assert result.ks_statistics[0] == signed_ks_statistic(matrix[0], REFERENCE)
    assert result.num_cohorts == 3


def test_a_statistic_of_zero_counts_as_negative() -> None:
    result = CLMACohorter().cohort([4], REFERENCE[None], REFERENCE)
    assert result.ks_statistics == {4: 0.0}
    assert result.negative_group == [4]


def test_clients_without_a_distinguishable_shift_are_pooled() -> None:
    matrix = _shifted([[0.01, 0.01], [-0.01, -0.01], [5, 5]], 0.0, 2)
    result = CLMACohorter(clusterer=OneCohortPerClient(), min_ks_magnitude=0.2).cohort([1, 2, 3], matrix, REFERENCE)
    assert result.assignments == {1: 0, 2: 0, 3: 1}
    assert result.positive_group == []


def test_paper_mode_splits_each_direction_in_two() -> None:
    matrix = _shifted([[-3, 0]] * 2 + [[0, -3]] * 2, 0.05, 3)
    paper = CLMACohorter(center=False, clusterer=AutoKMeans(fixed_k=2))
    assert paper.cohort([1, 2, 3, 4], matrix, REFERENCE).assignments == {1: 0, 2: 0, 3: 1, 4: 1}


@given(st.permutations(range(8)))
@settings(max_examples=20, deadline=None)
def test_the_order_of_clients_does_not_matter(order: list[int]) -> None:
    matrix = _shifted([[-2, 0]] * 2 + [[1, -2]] * 3 + [[3, 1]] * 3, 0.4, 4)
    plain = CLMACohorter().cohort(range(8), matrix, REFERENCE)
    assert CLMACohorter().cohort(order, matrix[order], REFERENCE).assignments == plain.assignments


def test_nobody_is_no_error() -> None:
    assert CLMACohorter().cohort([], np.zeros((0, 400)), REFERENCE).assignments == {}


def test_bad_input_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="matrix is"):
        check_clients([1], np.zeros((1, 3)), np.zeros(4))
    with pytest.raises(ValueError, match="repeats"):
        check_clients([1, 1], np.zeros((2, 3)), np.zeros(3))
    with pytest.raises(ValueError, match="client 7"):
        check_clients([3, 7], np.array([[0.0], [np.nan]]), np.zeros(1))
    with pytest.raises(ValueError, match="reference"):
        check_clients([3], np.zeros((1, 1)), np.array([np.inf]))


def test_groups_are_numbered_by_their_smallest_client() -> None:
    assert number_groups([[9, 3], [], [1]]) == {1: 0, 3: 1, 9: 1}
