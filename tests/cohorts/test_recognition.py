"""Groups whose true concept is known: recognised where the change says so, left alone where it does not."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from server_bridge.cohorts.recognition import RecognitionRule, group_change, recognise

SIZE = 2_000
Vector = NDArray[np.float64]


def _vectors(count: int, seed: int = 0) -> list[Vector]:
    return list(np.random.default_rng(seed).normal(size=(count, SIZE)))


def _trained(base: Vector, towards: Vector, members: int, noise: float, seed: int = 1) -> list[Vector]:
    rng = np.random.default_rng(seed)
    return [base + 0.3 * towards + noise * rng.normal(size=SIZE) for _ in range(members)]


@pytest.mark.parametrize(("members", "noise"), [(1, 0.2), (3, 0.6), (8, 0.9)])
def test_a_group_that_trains_towards_a_cohort_is_recognised_and_a_new_drift_is_not(members: int, noise: float) -> None:
    base, known, other, new = _vectors(4)
    cohorts = {"c1": base + known, "c2": base + other}
    back = recognise(RecognitionRule(), group_change(_trained(base, known, members, noise), [base] * members), cohorts)
    assert back is not None
    assert (back.cohort, back.recognised, back.second) == ("c1", True, "c2")
    fresh = recognise(RecognitionRule(), group_change(_trained(base, new, members, noise), [base] * members), cohorts)
    assert fresh is not None
    assert not fresh.recognised


def test_the_similarity_is_the_cosine_over_the_root_of_the_reliability_and_its_error_that_of_many_draws() -> None:
    base, known = _vectors(2)
    found = []
    for seed in range(200):
        group = group_change(_trained(base, known, 4, 0.3, seed), [base] * 4)
        recognition = recognise(RecognitionRule(), group, {"c1": base + known})
        assert recognition is not None
        cosine = group.change @ known / np.linalg.norm(group.change) / np.linalg.norm(known)
        assert recognition.similarity == pytest.approx(min(1.0, cosine / math.sqrt(group.reliability)), abs=1e-9)
        found.append((cosine, recognition.standard_error * math.sqrt(group.reliability)))
    cosines, errors = np.array(found).T
    assert errors.mean() == pytest.approx(cosines.std(), rel=0.3)  # power: a factor of 1.5 is 7 standard errors


def test_between_two_cohorts_a_group_is_left_alone() -> None:
    base, known, bit = _vectors(3)
    cohorts = {"c1": base + known - 0.05 * bit, "c2": base + known + 0.05 * bit}
    found = recognise(RecognitionRule(), group_change(_trained(base, known, 4, 0.5), [base] * 4), cohorts)
    assert found is not None
    assert found.similarity > 0.9
    assert not found.recognised


def test_what_stable_clients_do_as_well_is_no_sign_of_a_drift() -> None:
    base, common, new = _vectors(3)
    cohorts = {"c1": base + common}
    members = _trained(base, common + 0.8 * new, 3, 0.1)
    with_all = recognise(RecognitionRule(), group_change(members, [base] * 3), cohorts)
    less = recognise(RecognitionRule(), group_change(members, [base] * 3, stable=[0.3 * common] * 4), cohorts)
    assert with_all is not None
    assert with_all.recognised
    assert less is not None
    assert not less.recognised


def test_members_of_several_bases_are_compared_from_their_mean() -> None:
    first, step, known = _vectors(3)
    bases = [first, first + 0.1 * step]
    members = [_trained(base, known, 1, 0.2, seed)[0] for seed, base in enumerate(bases)]
    found = recognise(RecognitionRule(), group_change(members, bases), {"c1": first + known})
    assert found is not None
    assert found.recognised
    group = group_change(members, bases)
    np.testing.assert_allclose(group.base, first + 0.05 * step)
    np.testing.assert_allclose(group.change, np.mean(members, axis=0) - group.base, atol=1e-12)


def test_a_split_half_corrects_a_single_client_and_a_wild_one_not_beyond_measure() -> None:
    base, known = _vectors(2)
    members = _trained(base, known, 1, 0.6)
    raw = group_change(members, [base])
    assert raw.reliability == 1.0
    assert group_change(members, [base], halves=[0.25]).reliability == pytest.approx(0.4)
    for half in (0.0, -0.5, -1.0):
        assert group_change(members, [base], halves=[half]).reliability == 0.25


def test_nothing_to_compare_is_no_recognition() -> None:
    base, known = _vectors(2)
    still = group_change([base, base], [base, base])
    assert recognise(RecognitionRule(), still, {"c1": base + known}) is None
    moved = group_change([base + known], [base])
    assert recognise(RecognitionRule(), moved, {}) is None
    at_the_base = recognise(RecognitionRule(), moved, {"c1": base})
    assert at_the_base is not None
    assert not at_the_base.recognised


@pytest.mark.parametrize("order", [("c1", "c2", "c3"), ("c3", "c1", "c2")])
def test_the_order_of_cohorts_and_members_does_not_matter(order: tuple[str, ...]) -> None:
    base, *known = _vectors(4)
    cohorts = dict(zip(("c1", "c2", "c3"), [base + v for v in known], strict=True))
    members = _trained(base, known[1], 5, 0.5)
    found = recognise(
        RecognitionRule(), group_change(members[::-1], [base] * 5), {name: cohorts[name] for name in order}
    )
    again = recognise(RecognitionRule(), group_change(members, [base] * 5), cohorts)
    assert found is not None
    assert again is not None
    assert (found.cohort, found.second, found.recognised) == (again.cohort, again.second, again.recognised)
    assert found.similarity == pytest.approx(again.similarity)
    assert "c2" in found.sentence


def test_where_nothing_refutes_a_proposal_more_is_asked_and_never_less() -> None:
    assert RecognitionRule().without_trial() == RecognitionRule(0.3, 0.1, 2.0)
    assert RecognitionRule(0.5, 0.5, 3.0).without_trial() == RecognitionRule(0.5, 0.5, 3.0, 0.5)


@pytest.mark.parametrize(("clients", "level"), [(1, 0.2), (2, 0.2), (3, 0.3), (8, 0.3)])
def test_of_a_larger_group_more_is_asked(clients: int, level: float) -> None:
    base, known, other = _vectors(3)
    pointing = 0.25 * known / np.linalg.norm(known) + np.sqrt(1 - 0.25**2) * other / np.linalg.norm(other)
    members = [base + pointing for _ in range(clients)]
    found = recognise(RecognitionRule(), group_change(members, [base] * clients), {"c1": base + known})
    assert found is not None
    assert found.similarity == pytest.approx(0.25, abs=0.03)
    assert found.threshold == level
    assert found.recognised == (clients < 3)
