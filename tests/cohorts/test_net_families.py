import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server_bridge.cohorts.division import centred, divisions, gap
from server_bridge.cohorts.evidence import Matrix, measure
from server_bridge.cohorts.families import find_families
from server_bridge.cohorts.net_families import SINGLE, SINGLE_UNSURE, disattenuated, divide, limit, several
from tests.benchmarks.cohorts_data.rivals import silhouette


def _cosines(sizes: list[int], across: float, inside: float = 0.8, scatter: float = 0.03, seed: int = 0) -> Matrix:
    rng = np.random.default_rng(seed)
    families = np.repeat(np.arange(len(sizes)), sizes)
    values = np.where(families[:, None] == families, inside, across) + rng.normal(0, scatter, (len(families),) * 2)
    values = (values + values.T) / 2
    np.fill_diagonal(values, 1.0)
    return values


@pytest.mark.parametrize("sizes", [[4, 4], [2, 4], [3, 9], [2, 2]])
@pytest.mark.parametrize("reliable", [False, True])
def test_families_are_divided_and_one_family_is_not(sizes: list[int], reliable: bool) -> None:
    known = np.full(sum(sizes), 0.8) if reliable else None
    divided = divide(_cosines(sizes, 0.25), known)
    assert divided is not None
    sides = divided.sides
    assert sides.tolist() == [False] * sizes[0] + [True] * sizes[1]
    assert 0.25 < divided.limit < (1.0 if reliable else 0.8)
    assert divide(_cosines([sum(sizes)], 0.0), known) is None


def test_families_are_found_behind_what_all_share() -> None:
    """Cosines of 0.76 and 0.9 leave -0.14 and 0.5 and more once the mean is off."""
    values = centred(_cosines([4, 4], 0.76, 0.9, 0.0))
    assert values[0, 1] > 0.3
    assert values[0, 7] < -0.1


def test_a_single_client_needs_its_reliability_known() -> None:
    values = _cosines([1, 4], 0.25)
    assert divide(values, None) is None
    divided = divide(values, np.full(5, 0.8))
    assert divided is not None
    assert divided.sides.sum() in (1, 4)
    noisy = divide(values, np.array([0.1, 0.8, 0.8, 0.8, 0.8]))
    assert noisy is None


def test_the_fewer_and_the_more_uneven_the_less_similar_they_must_be() -> None:
    def of(left: int, right: int) -> float:
        return limit(np.arange(left + right) < left, reliable=True)

    assert of(1, 2) == SINGLE
    assert limit(np.arange(3) < 1, reliable=False) == SINGLE_UNSURE
    assert of(1, 24) < of(1, 2)
    assert of(2, 2) < of(4, 4) < of(12, 12)
    assert of(2, 23) < of(4, 21) < of(12, 13)


@given(st.integers(0, 10_000), st.integers(3, 12))
@settings(max_examples=40, deadline=None)
def test_divisions_and_gaps_do_not_depend_on_the_order(seed: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(count, 6)) + 0.5
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    values = rows @ rows.T
    order = rng.permutation(count)
    plain, mixed = divide(values, None), divide(values[np.ix_(order, order)], None)
    assert (plain is None) == (mixed is None)
    if plain is not None and mixed is not None:
        moved = plain.sides[order]
        assert (moved == mixed.sides).all() or (moved != mixed.sides).all()
    for sides in divisions(values):
        assert sides.any()
        assert not sides[0]


def test_the_silhouette_is_the_textbook_s() -> None:
    values = _cosines([3, 5], 0.3, scatter=0.1)
    apart, sides = centred(values), np.arange(8) > 2
    distances = 1 - apart
    assert gap(values, apart, sides).silhouette == pytest.approx(silhouette(distances, sides))
    inside = [values[np.ix_(s, s)][np.triu_indices(s.sum(), 1)].mean() for s in (sides, ~sides)]
    expected = values[:3, 3:].mean() / np.sqrt(inside[0] * inside[1])
    assert gap(values, apart, sides).relative == pytest.approx(expected)


def test_noise_is_taken_off_similarities() -> None:
    known = np.array([0.25, 0.64, 0.81])
    values = 0.9 * np.sqrt(np.outer(known, known))
    np.fill_diagonal(values, 1.0)
    everybody = np.ones(3, bool)
    assert disattenuated(values, known, everybody, everybody) == pytest.approx(0.9)


def test_two_updates_of_a_net_are_parted_by_reliability_or_when_hardly_alike() -> None:
    def rules(similarity: float, reliability: float | None) -> list[tuple[int, str]]:
        rng = np.random.default_rng(0)
        shared, *own = rng.standard_t(3, size=(3, 4_000))
        rows = np.sqrt(similarity) * shared + np.sqrt(1 - similarity) * np.stack(own)
        evidence = measure(rows, [])
        assert evidence.structured
        known = None if reliability is None else np.full(2, reliability)
        return [(len(family.rows), family.rule) for family in find_families(evidence, known)]

    assert rules(0.5, 0.6) == [(2, "alike")]
    assert rules(0.3, 0.9) == [(1, "less-alike-than-reliable")] * 2
    assert rules(0.3, None) == [(2, "cannot-tell")]
    assert rules(0.1, None) == [(1, "hardly-alike")] * 2


def test_families_of_which_two_are_nearer_to_each_other_are_told_apart_at_once() -> None:
    families = np.repeat(np.arange(4), 3)
    values = np.where(families[:, None] == families, 0.8, np.where(families[:, None] // 2 == families // 2, 0.4, 0.1))
    np.fill_diagonal(values, 1.0)
    assert [group.tolist() for group in sorted(several(values, None), key=lambda group: int(group[0]))] == [
        [0, 1, 2],
        [3, 4, 5],
        [6, 7, 8],
        [9, 10, 11],
    ]
    assert several(_cosines([12], 0.0), np.full(12, 0.8)) == []
    assert several(_cosines([6, 6], 0.3), None) == []
