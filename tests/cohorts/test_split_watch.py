import json
import math
from collections.abc import Sequence

import numpy as np

from server_bridge.cohorts.cohorter import CohortAssignment
from server_bridge.cohorts.explanation import Explanation, Neighbour
from server_bridge.cohorts.membership import ROOT, CohortRegistry
from server_bridge.cohorts.recognition import RecognitionRule
from server_bridge.cohorts.returns import ReturnRule
from server_bridge.cohorts.selectors import AllParams
from server_bridge.cohorts.split_watch import SplitWatch, split_facts


def test_facts_of_any_cohorter_are_json() -> None:
    other = Neighbour(2, np.float32(0.25), math.inf)  # type: ignore[arg-type]  # what a cohorter may put in
    explained = Explanation(1, None, other, 1.0, math.nan, np.float64(0.5), "alone", "words")
    facts = split_facts(CohortAssignment(explanations={1: explained}, similarities={2: 0.75}), 1)
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert (facts["standard_error"], facts["other"]["standard_error"]) == (None, None)
    assert (facts["other"]["similarity"], facts["threshold"], facts["own"]) == (0.25, 0.5, None)
    assert split_facts(CohortAssignment(similarities={2: 0.75}), 2) == {"rule": "cohorter", "similarity": 0.75}
    assert split_facts(CohortAssignment(ks_statistics={3: -0.5}), 3) == {"rule": "signed-ks", "ks_statistic": -0.5}


def _registry(**models: float) -> CohortRegistry:
    """Root 10 and one cohort a name, each with a client of its own, along the same direction."""
    registry = CohortRegistry()
    registry.ensure_root([10])
    registry.set_params(ROOT, {"w": np.zeros(2)})
    for client, (name, length) in enumerate(models.items(), start=1):
        registry.set_params(name, {"w": np.array([length, 1.0])})
        registry.place(client, name)
    return registry


def _watch(sure: frozenset[str] = frozenset()) -> SplitWatch:
    watch = SplitWatch(ReturnRule(rounds=1), AllParams())
    far = Explanation(1, None, Neighbour(2, 0.1, 0.01), 1.0, 0.0, 0.9, "rule", "words")
    for name in ("c1", "c2"):
        watch.split(name, [{"w": np.zeros(2)}], {ROOT: {"w": np.zeros(2)}}, [far if name in sure else None])
    return watch


def test_the_older_of_two_that_agree_is_kept() -> None:
    registry = _registry(c1=5.0, c2=6.0)
    ((kept, gone, why),) = _watch().look(registry, {"c1", "c2"}, set())
    assert (kept, gone) == ("c1", "c2")
    assert why.similarity > 0.99


def test_who_was_parted_for_sure_did_not_reply_or_has_just_begun_is_not_looked_at() -> None:
    registry = _registry(c1=5.0, c2=6.0)
    assert _watch(frozenset({"c1", "c2"})).look(registry, {"c1", "c2"}, set()) == []
    assert _watch().look(registry, {ROOT}, set()) == []
    assert _watch().look(registry, {"c1", "c2"}, {"c1", "c2"}) == []


def test_cohorts_that_began_alike_are_kept_once_and_come_back() -> None:
    base = {"w": np.zeros(2)}
    watch = SplitWatch(ReturnRule(), AllParams())
    for name in ("c1", "c2"):
        watch.split(name, [base], {ROOT: base}, [None], barred=[ROOT] if name == "c2" else [])
    document, models = watch.export()
    assert len(models) == 1
    restored = SplitWatch(ReturnRule(), AllParams())
    restored.restore(json.loads(json.dumps(document)), models)
    assert restored.export() == (document, models)
    watch.forget([ROOT, "c2"])
    assert [name for name, _ in watch.export()[0]["origins"]] == [ROOT, "c2"]
    watch.end_adaptation()
    document, models = watch.export()
    assert (document["origins"], document["doubtful"], document["barred"]) == ([], [], [["c2", [ROOT]]])
    assert document["earlier"] == [["c2", "earlier-c2"]]
    assert list(models) == ["earlier-c2"]


TRIED = {ROOT, "c1", "c2"}


def _earlier(registry: CohortRegistry, *, barred: Sequence[str] = ()) -> SplitWatch:
    """c1 split off by itself from zero, and that adaptation is over."""
    watch = SplitWatch(ReturnRule(), AllParams())
    watch.split("c1", [{"w": np.zeros(2)}], {ROOT: {"w": np.zeros(2)}}, [None], barred)
    watch.end_adaptation()
    assert watch.due(registry) == ["c1"]
    return watch


def test_a_doubtful_split_is_looked_at_once_in_each_later_adaptation() -> None:
    registry = _registry(c1=5.0, c2=6.0)
    watch = _earlier(registry)
    assert watch.look_again(registry, {"c2"}, TRIED, RecognitionRule()) == []
    ((cohort, recognition),) = watch.look_again(registry, {"c1"}, TRIED, RecognitionRule())
    assert (cohort, recognition.cohort) == ("c1", "c2")
    assert watch.look_again(registry, {"c1"}, TRIED, RecognitionRule()) == []
    restored = SplitWatch(ReturnRule(), AllParams())
    document, models = watch.export()
    restored.restore(json.loads(json.dumps(document)), models)
    assert restored.due(registry) == []
    restored.end_adaptation()
    assert restored.due(registry) == ["c1"]
    assert restored.look_again(registry, {"c1"}, TRIED, RecognitionRule()) != []


def test_a_cohort_that_has_grown_or_is_barred_from_the_only_one_it_is_like_stays() -> None:
    registry = _registry(c1=5.0, c2=6.0)
    assert _earlier(registry, barred=["c2"]).look_again(registry, {"c1"}, TRIED, RecognitionRule()) == []
    grown = _earlier(registry)
    for client in (20, 21):
        registry.place(client, "c1")
    assert grown.look_again(registry, {"c1"}, TRIED, RecognitionRule()) == []


def test_it_goes_to_no_cohort_that_the_next_loss_cannot_refute_or_that_split_off_from_it() -> None:
    registry = _registry(c1=5.0, c2=6.0)
    assert _earlier(registry).look_again(registry, {"c1"}, TRIED - {"c2"}, RecognitionRule()) == []
    parent = _earlier(registry)
    parent.split("c2", [{"w": np.zeros(2)}] * 3, {"c1": {"w": np.zeros(2)}}, [None])
    parent.end_adaptation()
    assert parent.look_again(registry, {"c1"}, TRIED, RecognitionRule()) == []


def test_a_larger_group_or_one_that_others_were_found_to_belong_to_is_no_noise() -> None:
    registry = _registry(c1=5.0, c2=6.0)
    watch = SplitWatch(ReturnRule(), AllParams())
    watch.split("c1", [{"w": np.zeros(2)}] * 3, {ROOT: {"w": np.zeros(2)}}, [None])
    watch.end_adaptation()
    assert watch.due(registry) == []
    joined = _earlier(registry)
    joined.confirm("c1")
    assert joined.due(registry) == []
