import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from server_bridge.cohorts.cohorter import CohortContext
from server_bridge.cohorts.cosine import CosineCohorter, cosine_matrix

SIZE = 2_000


def _families(sizes: list[int], noise: float, seed: int, base: NDArray[np.float64]) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(len(sizes), SIZE))
    rows = [base + directions[f] + noise * rng.normal(size=SIZE) for f, n in enumerate(sizes) for _ in range(n)]
    return np.stack(rows)


def _expected(sizes: list[int]) -> list[int]:
    return [family for family, n in enumerate(sizes) for _ in range(n)]


def _labels(matrix: NDArray[np.float64], base: NDArray[np.float64], cut: float = 0.35) -> list[int]:
    ids = list(range(len(matrix)))
    context = CohortContext(bases=dict.fromkeys(ids, base))
    found = CosineCohorter(cut).cohort(ids, matrix, base + 1.0, context=context)
    return [found.assignments[i] for i in ids]


@pytest.mark.parametrize("sizes", [[4, 4], [1], [2], [1, 1], [3, 1, 2], [8], [1, 1, 1, 1], [5, 4, 4, 3]])
@pytest.mark.parametrize("seed", range(4))
def test_families_are_found_whatever_their_number_and_size(sizes: list[int], seed: int) -> None:
    base = np.random.default_rng(99).normal(size=SIZE)
    # noise 0.9: cosines inside a family are about 1 / 1.81 = 0.55, as measured on real updates
    assert _labels(_families(sizes, 0.9, seed, base), base) == _expected(sizes)


@given(st.permutations(range(7)), st.floats(1e-3, 1e3))
@settings(max_examples=25, deadline=None)
def test_neither_order_nor_scale_matters(order: list[int], scale: float) -> None:
    base = np.random.default_rng(5).normal(size=SIZE)
    matrix = _families([3, 4], 0.9, 1, base)
    scaled = base + scale * (matrix - base)
    context = CohortContext(bases=dict.fromkeys(range(7), base))
    found = CosineCohorter().cohort(order, scaled[order], base, context=context)
    assert [found.assignments[i] for i in range(7)] == [0, 0, 0, 1, 1, 1, 1]


def test_each_client_may_change_by_its_own_length() -> None:
    base = np.zeros(SIZE)
    matrix = _families([3, 3], 0.5, 2, base) * np.array([[1.0], [10], [0.1], [5], [1], [100]])
    assert _labels(matrix, base) == [0, 0, 0, 1, 1, 1]


def test_the_cut_is_the_least_mean_cosine() -> None:
    base = np.zeros(2)
    matrix = np.array([[1.0, 0.0], [0.6, 0.8]])
    assert _labels(matrix, base, cut=0.59) == [0, 0]
    assert _labels(matrix, base, cut=0.61) == [0, 1]


def test_without_a_context_changes_are_measured_from_the_reference() -> None:
    reference = np.random.default_rng(3).normal(size=SIZE)
    matrix = _families([2, 2], 0.5, 3, reference)
    assert CosineCohorter().cohort([1, 2, 3, 4], matrix, reference).assignments == {1: 0, 2: 0, 3: 1, 4: 1}


def test_clients_of_far_bases_do_not_share_a_group() -> None:
    rng = np.random.default_rng(4)
    here, far, change = rng.normal(size=(3, SIZE))
    matrix = np.stack([here + change, here + change, here + 5 * far + change])
    context = CohortContext(bases={1: here, 2: here, 3: here + 5 * far})
    assert CosineCohorter().cohort([1, 2, 3], matrix, here, context=context).assignments == {1: 0, 2: 0, 3: 1}


def test_clients_of_near_bases_that_change_alike_do() -> None:
    rng = np.random.default_rng(4)
    here, near, change = rng.normal(size=(3, SIZE))
    other = here + 0.1 * near
    matrix = np.stack([here + change, other + change])
    context = CohortContext(bases={1: here, 2: other})
    assert CosineCohorter().cohort([1, 2], matrix, here, context=context).assignments == {1: 0, 2: 0}
    strict = CosineCohorter(base_tolerance=0.0)
    assert strict.cohort([1, 2], matrix, here, context=context).assignments == {1: 0, 2: 1}


def test_a_client_that_did_not_change_is_like_nobody() -> None:
    base = np.ones(10)
    moved = base + np.arange(10)
    assert _labels(np.stack([base, base, moved, moved]), base) == [0, 1, 2, 2]


def test_the_similarity_is_the_mean_cosine_with_the_group() -> None:
    matrix = np.array([[1.0, 0.0], [0.6, 0.8], [-1.0, 0.0]])
    found = CosineCohorter().cohort([1, 2, 3], matrix, np.zeros(2))
    assert found.similarities == pytest.approx({1: 0.6, 2: 0.6, 3: 1.0})


def test_bad_parameters_and_bases_are_refused() -> None:
    with pytest.raises(ValueError, match="cut"):
        CosineCohorter(1.5)
    with pytest.raises(ValueError, match="base_tolerance"):
        CosineCohorter(base_tolerance=float("nan"))
    with pytest.raises(ValueError, match="client 1"):
        CosineCohorter().cohort([1], np.ones((1, 2)), np.ones(2), context=CohortContext(bases={1: np.ones(3)}))


def test_nobody_is_no_error() -> None:
    assert CosineCohorter().cohort([], np.zeros((0, 4)), np.zeros(4)).assignments == {}


def test_a_zero_row_has_no_direction() -> None:
    assert cosine_matrix(np.array([[0.0, 0.0], [0.0, 4.0]])).tolist() == [[1.0, 0.0], [0.0, 1.0]]
