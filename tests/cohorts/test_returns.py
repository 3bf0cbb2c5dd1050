import numpy as np
import pytest

from server_bridge.cohorts.explanation import Explanation, Neighbour
from server_bridge.cohorts.returns import ReturnRule, Streak, change_cosines, is_doubtful, judge, small_cohorts

RULE = ReturnRule(few=2, level=0.25, margin=0.15, rounds=2)
SIZES = {"root": 5, "c1": 3, "c2": 4, "c3": 1}


def _cosines(**pairs: float) -> dict[tuple[str, str], float]:
    """c1_c3=0.5 ...: the given, and 0 for the other pairs."""
    found = {(a, b): 0.0 for a in SIZES for b in SIZES if a != b}
    for pair, cosine in pairs.items():
        a, b = pair.split("_")
        found[a, b] = found[b, a] = cosine
    return found


def _judge(streaks: dict[str, Streak], **pairs: float) -> tuple[dict[str, Streak], list[tuple[str, str]]]:
    after, found = judge(RULE, streaks, _cosines(**pairs), SIZES, ["c3"])
    return after, [(one.small, one.target) for one in found]


def test_it_takes_the_same_partner_in_rounds_in_a_row() -> None:
    once, found = _judge({}, c1_c3=0.5)
    assert (once, found) == ({"c3": Streak("c1", 1)}, [])
    assert _judge(once, c1_c3=0.5)[1] == [("c3", "c1")]
    assert _judge(once, c2_c3=0.5) == ({"c3": Streak("c2", 1)}, [])
    assert _judge(once, c1_c3=0.2) == ({}, [])


@pytest.mark.parametrize(
    ("pairs", "ready"),
    [
        ({"c1_c3": 0.26}, True),
        ({"c1_c3": 0.24}, False),
        ({"c1_c3": 0.5, "c2_c3": 0.34}, True),
        ({"c1_c3": 0.5, "c2_c3": 0.36}, False),
        ({"c1_c3": 0.5, "root_c3": 0.36}, False),
        ({"c1_c3": 0.5, "c1_c2": 0.36}, False),
        ({"c1_c3": 0.5, "root_c2": 0.34}, True),
    ],
)
def test_agreement_must_stand_out_from_what_different_cohorts_have(pairs: dict[str, float], ready: bool) -> None:
    assert bool(_judge({"c3": Streak("c1", 1)}, **pairs)[1]) is ready


def test_other_small_cohorts_are_no_measure_of_difference() -> None:
    """Two that split off the same family agree with each other as well as with it."""
    sizes = {"c1": 3, "c3": 1, "c4": 1}
    cosines = {(a, b): 0.4 for a in sizes for b in sizes if a != b}
    cosines["c3", "c1"] = cosines["c1", "c3"] = 0.5
    _, found = judge(RULE, {"c3": Streak("c1", 1)}, cosines, sizes, ["c3", "c4"])
    assert [(one.small, one.target) for one in found] == [("c3", "c1")]


def test_two_that_choose_each_other_go_together_once_and_streaks_of_the_gone_end() -> None:
    sizes = {"c1": 1, "c2": 1}
    cosines = {("c1", "c2"): 0.5, ("c2", "c1"): 0.5}
    streaks = {"c1": Streak("c2", 1), "c2": Streak("c1", 1), "c9": Streak("c1", 1)}
    after, found = judge(RULE, streaks, cosines, sizes, ["c1", "c2"])
    assert len(found) == 1
    assert "c9" not in after


def test_who_is_not_judged_keeps_its_streak() -> None:
    after, found = judge(RULE, {"c3": Streak("c1", 1)}, _cosines(c1_c3=0.9), SIZES, [])
    assert (after, found) == ({"c3": Streak("c1", 1)}, [])


def test_nobody_to_agree_with_is_no_agreement() -> None:
    assert judge(RULE, {}, {}, {"c1": 1}, ["c1"]) == ({}, [])


def test_cosines_are_those_of_the_changes_and_only_near_origins_compare() -> None:
    rng = np.random.default_rng(0)
    base, step, other = (rng.normal(size=200) for _ in range(3))
    far = base + 10 * other
    models = {"root": base, "c1": base + step, "c2": base + 0.1 * other + 2 * step, "c3": far + step}
    origins = {"root": base, "c1": base, "c2": base + 0.1 * other, "c3": far}
    found = change_cosines(models, origins)
    assert found["c1", "c2"] == pytest.approx(1.0)
    assert found["root", "c1"] == 0.0
    assert found["c3", "c1"] == found["c1", "c3"] == -1.0
    assert change_cosines({}, {}) == {}


def test_only_small_cohorts_whose_split_was_in_doubt_are_looked_at() -> None:
    assert small_cohorts(RULE, {"root": 0, "c1": 2, "c2": 1, "c3": 3}, {"root", "c1", "c3"}) == ["c1"]


@pytest.mark.parametrize(("similarity", "doubtful"), [(0.2, False), (0.45, True)])
def test_a_split_is_in_doubt_within_two_standard_errors(similarity: float, doubtful: bool) -> None:
    other = Neighbour(2, similarity, 0.1)
    assert is_doubtful(Explanation(1, None, other, 1.0, 0.0, 0.6, "rule", "words")) is doubtful
    unknown = Neighbour(2, 0.0, float("nan"))
    assert is_doubtful(Explanation(1, None, unknown, 1.0, 0.0, 0.6, "rule", "words"))
    assert is_doubtful(Explanation(1, None, None, 1.0, 0.0, 0.6, "alone", "words"))
    assert is_doubtful(None)
