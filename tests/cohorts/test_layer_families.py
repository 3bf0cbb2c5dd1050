import numpy as np
import pytest

from server_bridge.cohorts.cohorter import CohortContext
from server_bridge.cohorts.evidence import Matrix, measure
from server_bridge.cohorts.explaining import explain
from server_bridge.cohorts.families import find_families
from server_bridge.cohorts.family_cohorter import FamilyCohorter
from server_bridge.cohorts.layer_families import divide_by_layer, scatters

FIRST, LAST = 20_000, 1_000
TENSORS = [FIRST, LAST]


def _net(sizes: list[int], seed: int) -> Matrix:
    """A large layer in which all clients change alike, and a small one that turns otherwise in each family."""
    rng = np.random.default_rng(seed)
    families = np.repeat(np.arange(len(sizes)), sizes)
    first = rng.normal(size=FIRST) + 0.8 * rng.normal(size=(len(families), FIRST))
    last = rng.normal(size=(len(sizes), LAST))[families] + 0.5 * rng.normal(size=(len(families), LAST))
    return np.concatenate([first, 2.5 * last], axis=1)


def _rules(rows: Matrix, tensors: list[int]) -> list[tuple[list[int], str]]:
    return sorted((f.rows.tolist(), f.rule) for f in find_families(measure(rows, [], tensors), None))


@pytest.mark.parametrize("seed", range(5))
def test_a_drift_that_one_layer_shows_is_told_apart_where_layers_are_known(seed: int) -> None:
    rows = _net([4, 4], seed)
    apart = "told-apart-in-a-layer"
    assert _rules(rows, TENSORS) == [([0, 1, 2, 3], apart), ([4, 5, 6, 7], apart)]
    assert _rules(rows, []) == [(list(range(8)), "cannot-tell")]


@pytest.mark.parametrize("members", [6, 12])
def test_one_drift_stays_one(members: int) -> None:
    """Seeds 0 to 9; a level of 3 % would part one in 10 with a chance of 26 %."""
    for seed in range(10):
        evidence = measure(_net([members], seed), [], TENSORS)
        assert len(evidence.layer_cosines) == 2
        assert len(find_families(evidence, None)) == 1


def test_two_sides_of_three_are_the_least() -> None:
    assert len(_rules(_net([3, 3], 0), TENSORS)) == 2
    assert len(_rules(_net([2, 6], 0), TENSORS)) == 1


def test_the_explanation_is_by_the_layer_that_decided() -> None:
    evidence = measure(_net([4, 4], 0), [], TENSORS)
    families = find_families(evidence, None)
    assert {family.layer for family in families} == {1}
    reason = explain(range(8), evidence, None, families)[0]
    assert reason.own is not None
    assert reason.other is not None
    assert reason.own.similarity > reason.threshold > reason.other.similarity
    assert reason.sentence.startswith("In one layer")


def test_the_cohorter_takes_the_layers_of_its_context() -> None:
    rows = _net([4, 4], 0)
    reference = np.zeros(FIRST + LAST)
    told = FamilyCohorter().cohort(range(8), rows, reference, context=CohortContext(tensors=TENSORS))
    assert told.num_cohorts == 2
    assert FamilyCohorter().cohort(range(8), rows, reference).num_cohorts == 1
    with pytest.raises(ValueError, match="parameters in all were told of"):
        FamilyCohorter().cohort(range(8), rows, reference, context=CohortContext(tensors=[FIRST]))


def _levels(inside: float, across: float, scatter: float) -> Matrix:
    sides = np.arange(8) // 4
    noise = np.triu(np.random.default_rng(0).normal(0, scatter, (8, 8)), 1)
    values = np.where(sides[:, None] == sides, inside, across) + noise + noise.T
    np.fill_diagonal(values, 1.0)
    return values


def test_a_layer_must_show_more_than_all_coordinates() -> None:
    vague, clear = _levels(0.65, 0.55, 0.02), _levels(0.8, 0.15, 0.05)
    found = divide_by_layer([vague, clear], None)
    assert found is not None
    assert found.layer == 1
    assert found.divided.sides.tolist() == [False] * 4 + [True] * 4
    assert divide_by_layer([_levels(0.8, 0.5, 0.05)], None) is None
    assert divide_by_layer([_levels(0.5, 0.1, 0.13)], None) is None
    assert divide_by_layer([clear[2:7, 2:7]], None) is None
    assert divide_by_layer([], None) is None


def test_scatters_are_the_pooled_deviations_of_the_three_levels() -> None:
    values, sides = _levels(0.8, 0.15, 0.05), np.arange(8) > 3
    pairs = np.triu_indices(4, 1)
    parts = [values[:4, :4][pairs], values[4:, 4:][pairs], values[:4, 4:].ravel()]
    variance = sum((len(part) - 1) * part.var(ddof=1) for part in parts) / (28 - 3)
    expected = ((parts[0].mean() + parts[1].mean()) / 2 - parts[2].mean()) / np.sqrt(variance)
    assert scatters(values, sides) == pytest.approx(expected)
    assert expected > 5
