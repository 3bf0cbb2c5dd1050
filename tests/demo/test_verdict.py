from collections.abc import Callable
from dataclasses import replace

import pytest

from server_bridge.demo.facts import CLMA, FEDAVG, DemoFacts, Flag, GatewayFacts, Tally
from server_bridge.demo.verdict import false_flags, judge
from tests.demo.made_up import made_up_facts

Change = Callable[[GatewayFacts], GatewayFacts]


def changed(facts: DemoFacts, arm: str, ids: set[str], change: Change) -> DemoFacts:
    gateways = tuple(change(g) if g.id in ids else g for g in facts.arms[arm].gateways)
    return replace(facts, arms={**facts.arms, arm: replace(facts.arms[arm], gateways=gateways)})


def final(share: float) -> Change:
    return lambda g: replace(g, final=Tally(1000, round(1000 * share * (g.before.accuracy or 0.0))))


def test_a_run_in_which_everything_holds() -> None:
    assert judge(made_up_facts()).holds


ALL = {f"gw-{number:02d}" for number in range(1, 11)}
SPOILED: dict[str, Callable[[DemoFacts], DemoFacts]] = {
    "flagged its drift": lambda f: changed(f, CLMA, {"gw-03"}, lambda g: replace(g, flags=())),
    "No false flag": lambda f: changed(f, CLMA, {"gw-09"}, lambda g: replace(g, flags=(Flag(20.0, expected=True),))),
    "Families separated": lambda f: changed(f, CLMA, {"gw-04"}, lambda g: replace(g, cohort="c2")),
    "Family means": lambda f: changed(f, CLMA, {"gw-05", "gw-06", "gw-07", "gw-08"}, final(0.87)),
    "under 0.75": lambda f: changed(f, CLMA, {"gw-01"}, final(0.74)),
    "Stationary gateways": lambda f: changed(f, CLMA, {"gw-10"}, final(0.95)),
    "Plain averaging": lambda f: changed(f, FEDAVG, {"gw-09", "gw-10"}, lambda g: replace(g, final=Tally(9, 9))),
    "run on every gateway": lambda f: changed(f, FEDAVG, {"gw-02"}, lambda g: replace(g, activated_s=None)),
    "Both bad releases": lambda f: replace(f, bad_releases=f.bad_releases[:1]),
}


@pytest.mark.parametrize("name", SPOILED)
def test_each_criterion_can_fail_alone(name: str) -> None:
    failed = judge(SPOILED[name](made_up_facts())).failed
    assert len(failed) == 1
    assert name in failed[0].name


def test_own_release_must_come_back() -> None:
    assert not judge(replace(made_up_facts(), reasserted=False)).holds


def test_a_stationary_gateway_outside_the_root_is_no_separation() -> None:
    moved = changed(made_up_facts(), CLMA, {"gw-09", "gw-10"}, lambda g: replace(g, cohort="c3"))
    assert any("Families separated" in criterion.name for criterion in judge(moved).failed)


def test_a_family_split_in_two_is_no_separation() -> None:
    split = changed(made_up_facts(), CLMA, {"gw-01", "gw-02"}, lambda g: replace(g, cohort="c3"))
    assert any("Families separated" in criterion.name for criterion in judge(split).failed)


def test_flags_before_the_remount_or_after_the_activation_are_false() -> None:
    early = changed(made_up_facts(), CLMA, {"gw-02"}, lambda g: replace(g, flags=(*g.flags, Flag(1.0, expected=False))))
    assert false_flags(early.arms[CLMA]) == ["gw-02"]


def test_nothing_measured_is_a_failure_not_an_error() -> None:
    empty = changed(made_up_facts(), CLMA, ALL, lambda g: replace(g, before=Tally(), final=Tally()))
    assert not judge(empty).holds


def test_other_numbers_of_gateways_are_held_only_to_the_closed_loop() -> None:
    facts = made_up_facts(gateways=5)
    poor = changed(facts, CLMA, {"gw-01"}, final(0.5))
    assert judge(poor).holds
    assert not judge(changed(facts, CLMA, {"gw-01"}, lambda g: replace(g, flags=()))).holds
