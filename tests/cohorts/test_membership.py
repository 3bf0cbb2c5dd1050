import json

import numpy as np
import pytest

from server_bridge.cohorts.membership import ROOT, CohortRegistry, Move
from server_bridge.cohorts.selectors import AllParams


def _model(*values: float) -> dict[str, np.ndarray]:
    return {"w": np.array(values, np.float64)}


def _drift(registry: CohortRegistry, members: list[int], *values: float) -> str:
    for client in members:
        registry.quarantine(client)
    return registry.create_cohort(members, _model(*values), dict.fromkeys(members, 0.5))


def _registry() -> CohortRegistry:
    registry = CohortRegistry()
    registry.ensure_root([1, 2, 3, 4])
    registry.set_params(ROOT, _model(1, 0))
    return registry


def test_newcomers_and_strangers_are_in_the_root() -> None:
    registry = _registry()
    registry.ensure_root([4, 5])
    assert registry.members(ROOT) == [1, 2, 3, 4, 5]
    assert registry.cohort_of(99) == ROOT


def test_drifted_clients_leave_and_begin_cohorts_with_lineage() -> None:
    registry = _registry()
    registry.begin_round(3)
    registry.quarantine(2)
    assert registry.quarantined == {2}
    assert registry.members(ROOT) == [1, 3, 4]
    assert registry.create_cohort([2], _model(0, 1), {2: -0.25}) == "c1"
    assert registry.round_moves == [Move(3, 2, ROOT, "c1", "drifted", -0.25)]
    assert registry.quarantined == set()


def test_who_is_not_regrouped_returns() -> None:
    registry = _registry()
    registry.quarantine(2)
    registry.clear_quarantine()
    assert registry.cohort_of(2) == ROOT
    assert registry.members(ROOT) == [1, 2, 3, 4]


def test_emptied_cohorts_vanish_and_the_root_stays() -> None:
    registry = _registry()
    _drift(registry, [1, 2, 3, 4], 0, 1)
    _drift(registry, [1, 2, 3, 4], 0, 2)
    assert registry.prune_empty() == ["c1"]
    assert registry.cohort_ids == [ROOT, "c2"]


def test_names_come_from_outside_and_never_repeat() -> None:
    names = iter(["c7", "c7"])
    registry = CohortRegistry(lambda: next(names))
    registry.ensure_root([1, 2])
    assert _drift(registry, [1], 0) == "c7"
    with pytest.raises(ValueError, match="c7"):
        _drift(registry, [2], 0)


def test_the_closest_cohorts_merge_into_the_older() -> None:
    registry = _registry()
    _drift(registry, [2], 0, 1)
    _drift(registry, [3, 4], 0.01, 1)
    assert registry.merge_similar(AllParams(), 0.01) == {"c2": "c1"}
    assert registry.members("c1") == [2, 3, 4]
    np.testing.assert_allclose(registry.params("c1")["w"], [0.02 / 3, 1])
    assert registry.cohort_ids == [ROOT, "c1"]


def test_a_chain_of_merges_ends_in_one_cohort() -> None:
    registry = _registry()
    _drift(registry, [2], 1, 0.01)
    _drift(registry, [3], 1, 0.02)
    assert registry.merge_similar(AllParams(), 0.01) == {"c1": ROOT, "c2": ROOT}
    assert registry.members(ROOT) == [1, 2, 3, 4]


def test_cohorts_just_split_off_are_spared() -> None:
    registry = _registry()
    _drift(registry, [2], 1, 0.01)
    assert registry.merge_similar(AllParams(), 0.5, spared=["c1"]) == {}


def test_a_client_that_is_gone_is_forgotten() -> None:
    registry = _registry()
    registry.forget(3)
    registry.forget(77)
    assert registry.members(ROOT) == [1, 2, 4]
    assert registry.lineage[-1] == Move(0, 3, ROOT, None, "left")


def test_everything_survives_the_way_through_json() -> None:
    registry = _registry()
    registry.snapshot()
    registry.begin_round(1)
    _drift(registry, [2, 3], 0, 1)
    registry.snapshot()
    registry.forget(3)
    registry.quarantine(1)
    registry.snapshot()
    document = json.loads(json.dumps(registry.export()))
    models = {cohort: registry.params(cohort) for cohort in registry.cohort_ids}
    restored = CohortRegistry()
    restored.restore(document, models)
    assert restored.export() == registry.export()
    assert restored.history == registry.history
    assert restored.lineage == registry.lineage
    assert restored.cohort_ids == registry.cohort_ids
    assert _drift(restored, [4], 5) == "c2"


def test_history_and_lineage_are_bounded() -> None:
    registry = CohortRegistry()
    registry.set_params("c1", _model(1))
    registry.ensure_root([1])
    for i in range(10_500):
        registry.place(1, "c1" if i % 2 else ROOT)
        registry.snapshot()
    assert len(registry.lineage) == 10_000
    assert len(registry.history) == 1_000


def test_cohorts_merge_by_where_they_went_from_the_root_and_never_with_it() -> None:
    """All share nearly all of their weights; c1 and c3 went the same way."""
    began, there, elsewhere = np.random.default_rng(0).normal(size=(3, 500)) * [[10.0], [1.0], [1.0]]
    registry = CohortRegistry()
    models = {ROOT: began, "c1": began + there, "c2": began + elsewhere, "c3": began + 0.9 * there}
    for client, (name, vector) in enumerate(models.items()):
        registry.set_params(name, {"w": vector})
        registry.place(client, name)
    assert registry.merge_similar(AllParams(), 0.5, origin=ROOT) == {"c3": "c1"}
    assert registry.members("c1") == [1, 3]
    np.testing.assert_allclose(registry.params("c1")["w"], began + 0.95 * there)
    assert set(registry.merge_similar(AllParams(), 0.5)) == {"c1", "c2"}  # by weights everything is alike


def test_nobody_joins_a_cohort_that_there_is_not() -> None:
    registry = _registry()
    registry.quarantine(2)
    with pytest.raises(KeyError, match="c9"):
        registry.join([2], "c9")
    assert registry.quarantined == {2}
