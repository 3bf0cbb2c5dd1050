"""A cohort of two concepts that is equally bad for both is parted, though nobody flags; others are left alone."""

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from server_bridge.cohorts.cosine import CosineCohorter
from server_bridge.flower.clma import CLMA
from server_bridge.flower.mixtures import MIXED_COHORT, MixtureRule
from server_bridge.flower.state import decode_state, encode_state
from server_bridge.flower.strategies import StrategySettings, make_strategy
from tests.flower.by_hand import A, B, Client, Model, Rounds, flags, options

AGAINST = {name: -tensor for name, tensor in A.items()}
ONE, OTHER = [1, 2, 3, 4], [5, 6, 7]


def _strategy(flagged: Sequence[int] = (), rule: MixtureRule | None = None) -> CLMA:
    rule = rule or MixtureRule()
    return CLMA(cohorter=CosineCohorter(0.5), flagged=flags(r1=flagged), mixture_rule=rule, **options())


def _mixed(strategy: CLMA) -> Rounds:
    """Two concepts pull the root's weights in opposite directions."""
    return Rounds(strategy, {**{n: Client(A) for n in ONE}, **{n: Client(AGAINST) for n in OTHER}})


def test_what_pulls_two_ways_is_parted_when_it_has_been_seen_twice() -> None:
    rounds = _mixed(_strategy()).run()
    assert rounds.groups == {"root": [*ONE, *OTHER]}
    rounds.run()
    assert rounds.groups == {"root": ONE, "c1": OTHER}
    for cohort, members in rounds.groups.items():
        np.testing.assert_allclose(rounds.strategy.registry.params(cohort)["w"], rounds.mean(members)["w"], atol=1e-5)
    assert {name: why.reason for name, why in rounds.strategy.noted.items()} == dict.fromkeys(OTHER, MIXED_COHORT)
    assert "pull its weights 2 ways" in rounds.strategy.noted[OTHER[0]].detail
    assert [(m.client, m.reason) for m in rounds.strategy.registry.round_moves] == [(n, "drifted") for n in OTHER]
    rounds.run().run()
    assert rounds.groups == {"root": ONE, "c1": OTHER}


def test_by_default_nobody_looks() -> None:
    rounds = Rounds(CLMA(cohorter=CosineCohorter(0.5), **options()), _mixed(_strategy()).clients)
    assert rounds.run().run().run().groups == {"root": [*ONE, *OTHER]}


BOTH = {name: 0.3 * (A[name] + B[name]) for name in A}
TOWARDS_A, TOWARDS_B = ({name: own[name] + BOTH[name] for name in own} for own in (A, B))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (dict.fromkeys([*ONE, *OTHER], A), "one concept"),
        (dict.fromkeys(ONE, TOWARDS_A) | dict.fromkeys(OTHER, TOWARDS_B), "two, but what both do adds up"),
        (dict.fromkeys([*ONE, *OTHER[1:]], A) | {OTHER[0]: AGAINST}, "one against all is no concept"),
        ({1: A, 2: A, 3: AGAINST}, "too few"),
    ],
)
def test_a_cohort_that_gets_on_is_left_whole(changes: Mapping[int, Model], why: str) -> None:
    rounds = Rounds(_strategy(), {n: Client(change) for n, change in changes.items()}).run()
    assert why != "two, but what both do adds up" or _partition(rounds) == [ONE, OTHER]
    assert rounds.run().run().groups == {"root": sorted(changes)}, why


def _partition(rounds: Rounds) -> list[list[int]]:
    """What the cohorter finds among all."""
    nodes = sorted(rounds.got)
    matrix = np.stack([rounds.got[node]["w"].ravel() for node in nodes])
    found = CosineCohorter(0.5).cohort(nodes, matrix, rounds.sent[nodes[0]]["w"].ravel()).assignments
    return [[node for node in nodes if found[node] == group] for group in sorted(set(found.values()))]


def test_noise_after_training_is_no_concept_though_it_opposes() -> None:
    rng = np.random.default_rng(3)
    signs = [np.sign(rng.standard_normal(1)) for _ in range(3)]
    clients = {n: Client({k: (0.2 * v * signs[n % 3]).astype(np.float32) for k, v in A.items()}, 1.0) for n in ONE}
    rounds = Rounds(_strategy(), clients).run().run().run()
    assert rounds.groups == {"root": ONE}


def test_other_groups_in_the_next_round_are_no_second_look() -> None:
    rounds = _mixed(_strategy()).run()
    for node, change in ((3, AGAINST), (4, AGAINST), (5, A), (6, A)):
        rounds.clients[node].change = change
    rounds.run()
    assert rounds.groups == {"root": [*ONE, *OTHER]}
    rounds.run()
    assert rounds.groups == {"root": [1, 2, 5, 6], "c1": [3, 4, 7]}


def test_who_was_away_does_not_keep_the_others_together() -> None:
    rounds = _mixed(_strategy()).run()
    rounds.clients[1].away = rounds.clients[7].away = True
    rounds.run()
    assert rounds.groups == {"root": [1, 2, 3, 4, 7], "c1": [5, 6]}


def test_who_flags_is_not_looked_at_and_an_adaptation_begins_anew() -> None:
    rounds = _mixed(_strategy(flagged=OTHER)).run()
    assert rounds.groups == {"root": ONE, "c1": OTHER}
    rounds = _mixed(_strategy()).run()
    rounds.strategy.end_adaptation()
    assert rounds.run().groups == {"root": [*ONE, *OTHER]}


def test_a_cohort_beyond_the_most_is_not_looked_at() -> None:
    assert _mixed(_strategy(rule=MixtureRule(most=6))).run().run().groups == {"root": [*ONE, *OTHER]}


def test_killed_between_two_looks_it_comes_to_the_same() -> None:
    rounds = _mixed(_strategy()).run()
    state = encode_state(rounds.strategy.export_state())
    rounds.strategy = _strategy()
    rounds.strategy.import_state(decode_state(state))
    assert rounds.run().groups == {"root": ONE, "c1": OTHER}


def test_the_paper_mode_does_not_look() -> None:
    clients = _mixed(_strategy()).clients
    strategy = make_strategy(StrategySettings(name="clma-paper", part_mixed=True), flagged=flags())
    assert isinstance(strategy, CLMA)
    assert Rounds(strategy, clients).run().run().groups == {"root": [*ONE, *OTHER]}


def test_the_default_cohorter_parts_them_too() -> None:
    strategy = make_strategy(StrategySettings(part_mixed=True), flagged=flags(), new_cohort_id=lambda: "c1")
    assert isinstance(strategy, CLMA)
    assert _mixed(strategy).run().run().groups == {"root": ONE, "c1": OTHER}
