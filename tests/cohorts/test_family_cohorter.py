import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server_bridge.cohorts.cohorter import CohortContext
from server_bridge.cohorts.explanation import Explanation
from server_bridge.cohorts.family_cohorter import FamilyCohorter
from tests.benchmarks.cohorts_data.drifted import Drifted
from tests.benchmarks.cohorts_data.synthetic import Recipe, draw

SIZE = 5_000


def _groups(drifted: Drifted, context: CohortContext | None = None) -> list[int]:
    ids = list(range(len(drifted.changes)))
    found = FamilyCohorter().cohort(ids, drifted.changes, np.zeros(drifted.changes.shape[1]), context=context)
    return [found.assignments[i] for i in ids]


# Level: in 20 seeds of each at 20,000 parameters all were one (docs/cohorting.md); here 5 seeds, all must be.
@pytest.mark.parametrize("members", [2, 4, 8])
@pytest.mark.parametrize(("snr", "rank"), [(2.0, None), (0.5, None), (2.0, 20), (1.0, 20)])
def test_identical_drifts_stay_together(members: int, snr: float, rank: int | None) -> None:
    for seed in range(5):
        assert _groups(draw(Recipe([members], SIZE, snr, rank, steps=True), seed)) == [0] * members


@pytest.mark.parametrize("shared", [0.0, 1.0])
@pytest.mark.parametrize("sizes", [[4, 4], [4, 4, 4, 4, 4], [4, 1, 1], [2, 2], [2, 1, 1]])
def test_families_are_told_apart_in_isotropic_noise(sizes: list[int], shared: float) -> None:
    drifted = draw(Recipe(sizes, 20_000, 0.5, steps=True, shared=shared), 1)
    assert _groups(drifted) == drifted.families.tolist()


@pytest.mark.parametrize("sizes", [[4, 4], [8, 8, 8]])
def test_families_are_told_apart_in_noise_of_few_directions(sizes: list[int]) -> None:
    drifted = draw(Recipe(sizes, SIZE, 1.0, 20, steps=True), 2)
    assert _groups(drifted) == drifted.families.tolist()


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("sizes", [[8], [4, 4], [1, 1, 1, 1]])
def test_drifts_of_few_parameters_are_decided_as_others_are(sizes: list[int], last: bool) -> None:
    rng, rows = np.random.default_rng(len(sizes)), []
    families = np.repeat(np.arange(len(sizes)), sizes)
    moved = np.arange(20_000) >= 19_000
    drifts = rng.normal(size=(len(sizes), 20_000)) * (moved if last else rng.random((len(sizes), 20_000)) < 0.05)
    for family in families:
        drift = 0.5 * np.sqrt(20_000) * drifts[family] / np.linalg.norm(drifts[family])
        rows.append((drift + rng.normal(size=20_000)) * np.exp(rng.uniform(-0.7, 0.7)))
    assert _groups(Drifted(np.array(rows, np.float32), families)) == families.tolist()


@pytest.mark.parametrize("members", [2, 4, 8])
def test_clients_with_nothing_in_common_are_parted(members: int) -> None:
    drifted = draw(Recipe([1] * members, SIZE, 1.0, steps=True), 0)
    assert _groups(drifted) == list(range(members))


def test_reliability_decides_what_cannot_be_told_without() -> None:
    drifted = draw(Recipe([1, 1, 1], 20_000, 1.0, shared=1.0, halves=True), 0)
    assert _groups(drifted) == [0, 0, 0]
    assert _groups(drifted, drifted.context()) == [0, 1, 2]
    alike = draw(Recipe([3], 20_000, 0.5, halves=True), 0)
    assert _groups(alike, alike.context()) == [0, 0, 0]


@given(st.permutations(range(8)), st.floats(1e-3, 1e3))
@settings(max_examples=10, deadline=None)
def test_neither_order_nor_scale_matters(order: list[int], scale: float) -> None:
    drifted = draw(Recipe([4, 4], SIZE, 1.0), 3)
    found = FamilyCohorter().cohort(order, drifted.changes[order] * np.float32(scale), np.zeros(SIZE))
    assert [found.assignments[i] for i in range(8)] == drifted.families.tolist()


def test_changes_are_measured_from_what_each_client_was_sent() -> None:
    rng = np.random.default_rng(0)
    drifted = draw(Recipe([2, 2], SIZE, 2.0), 0)
    here, there = rng.normal(size=(2, SIZE)) * 1e-4
    bases = {0: here, 1: there, 2: here, 3: there}
    matrix = np.stack([drifted.changes[i] + bases[i] for i in range(4)])
    found = FamilyCohorter().cohort(range(4), matrix, rng.normal(size=SIZE), context=CohortContext(bases=bases))
    assert found.assignments == {0: 0, 1: 0, 2: 1, 3: 1}


def test_like_changes_from_bases_far_apart_are_not_one_group() -> None:
    drifted = draw(Recipe([2], SIZE, 2.0), 0)
    bases = {0: np.zeros(SIZE), 1: np.ones(SIZE)}
    matrix = np.stack([drifted.changes[i] + bases[i] for i in range(2)])
    found = FamilyCohorter().cohort([0, 1], matrix, np.zeros(SIZE), context=CohortContext(bases=bases))
    assert found.assignments == {0: 0, 1: 1}
    assert found.explanations[0].rule == "nobody-to-compare"


def test_weights_that_did_not_change_are_like_nobody() -> None:
    drifted = draw(Recipe([3], SIZE, 2.0), 0)
    drifted.changes[1] = 0
    found = FamilyCohorter().cohort([4, 5, 6], drifted.changes, np.zeros(SIZE))
    assert found.assignments == {4: 0, 5: 1, 6: 0}
    assert found.explanations[5].rule == "no-change"


def test_every_client_is_told_why() -> None:
    drifted = draw(Recipe([2, 2, 1], 20_000, 1.0), 0)
    found = FamilyCohorter().cohort([7, 3, 9, 5, 1], drifted.changes, np.zeros(20_000))
    assert set(found.explanations) == set(found.assignments) == {1, 3, 5, 7, 9}
    pair, single = found.explanations[7], found.explanations[1]
    assert pair.own is not None
    assert pair.own.client == 3
    assert pair.own.similarity == pytest.approx(0.5, abs=0.05)
    assert 0 < pair.own.standard_error < 0.05
    assert single.own is None
    assert single.rule == "nothing-in-common"
    assert all(Explanation.from_json(reason.to_json()) == reason for reason in found.explanations.values())
    assert all(str(reason.other.client) in reason.sentence for reason in found.explanations.values() if reason.other)


@pytest.mark.parametrize("count", [0, 1])
def test_nobody_and_one_client(count: int) -> None:
    found = FamilyCohorter().cohort(list(range(count)), np.ones((count, 4)), np.zeros(4))
    assert found.assignments == dict.fromkeys(range(count), 0)


def test_misuse_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="negative"):
        FamilyCohorter(-1.0)
    with pytest.raises(ValueError, match="client 1"):
        FamilyCohorter().cohort([1], np.ones((1, 2)), np.ones(2), context=CohortContext(bases={1: np.ones(3)}))
