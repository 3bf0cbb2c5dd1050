"""Hysteresis in whole rounds: who split off through noise comes back, who truly differs does not."""

from collections.abc import Callable, Mapping

import numpy as np
import pytest

from server_bridge.cohorts.returns import ReturnRule
from server_bridge.flower.clma import CLMA
from server_bridge.flower.state import decode_state, encode_state
from tests.flower.by_hand import Client, Rounds, flags, fleet_of, options

FAMILY = [1, 2, 3, 4]


def _clma(**rounds: list[int]) -> CLMA:
    return CLMA(flagged=flags(**rounds), return_rule=ReturnRule(), **options())


def _noisy_at_first(clients: Mapping[int, Client], node: int) -> Callable[[Rounds], None]:
    """The node's update in round 1 is mostly noise; from round 2 on it is like the others'."""
    clients[node].noise = 6.0

    def calm(rounds: Rounds) -> None:
        rounds.clients[node].noise = 0.3

    return calm


@pytest.mark.parametrize("noisy", [1, 4])
def test_who_split_off_through_noise_comes_back_under_the_older_name(noisy: int) -> None:
    clients = fleet_of(a=FAMILY, b=[5, 6, 7], c=[8, 9])
    calm = _noisy_at_first(clients, noisy)
    rounds = Rounds(_clma(r1=[1, 2, 3, 4, 5, 6, 7]), clients).run()
    split = rounds.groups
    assert sorted(map(len, split.values())) == [1, 2, 3, 3]
    calm(rounds)
    rounds.run()
    assert rounds.groups == split
    rounds.run()
    other = rounds.strategy.registry.cohort_of(5)
    assert rounds.groups == {"root": [8, 9], "c1": FAMILY, other: [5, 6, 7]}
    moves = rounds.strategy.registry.round_moves
    assert [(move.client, move.reason) for move in moves] == [
        (n, "returned") for n in ([4] if noisy == 4 else [2, 3, 4])
    ]
    facts = moves[0].facts or {}
    assert facts["similarity"] >= facts["threshold"] >= 0.25
    assert "agreed in 2 rounds in a row" in facts["sentence"]
    assert rounds.run().groups["c1"] == FAMILY


def test_who_truly_differs_stays_apart_and_so_does_everybody_without_the_rule() -> None:
    rounds = Rounds(_clma(r1=[1, 2, 3, 5]), fleet_of(a=[1, 2, 3], b=[5], c=[8, 9]))
    for _ in range(6):
        rounds.run()
    assert rounds.groups == {"root": [8, 9], "c1": [1, 2, 3], "c2": [5]}
    clients = fleet_of(a=FAMILY, c=[8, 9])
    calm = _noisy_at_first(clients, 4)
    without = Rounds(CLMA(flagged=flags(r1=FAMILY), **options()), clients).run()
    calm(without)
    for _ in range(5):
        without.run()
    assert without.groups == {"root": [8, 9], "c1": [1, 2, 3], "c2": [4]}


def test_a_flag_a_round_late_ends_in_its_familys_cohort() -> None:
    rounds = Rounds(_clma(r1=[1, 2, 3], r2=[4]), fleet_of(a=FAMILY, c=[8, 9]))
    for _ in range(5):
        rounds.run()
    assert rounds.groups == {"root": [8, 9], "c1": FAMILY}


def test_a_round_without_a_reply_is_no_evidence() -> None:
    clients = fleet_of(a=FAMILY, c=[8, 9])
    calm = _noisy_at_first(clients, 4)
    rounds = Rounds(_clma(r1=FAMILY), clients).run()
    calm(rounds)
    rounds.run()
    rounds.clients[4].away = True
    for _ in range(3):
        rounds.run()
    assert rounds.groups["c2"] == [4]
    rounds.clients[4].away = False
    assert rounds.run().groups == {"root": [8, 9], "c1": FAMILY}


@pytest.mark.parametrize("killed_after", [1, 2, 3, 4])
def test_killed_after_any_round_it_returns_all_the_same(killed_after: int) -> None:
    states = []
    for kill in (False, True):
        clients = fleet_of(a=FAMILY, b=[5, 6, 7], c=[8, 9])
        calm = _noisy_at_first(clients, 4)
        rounds = Rounds(_clma(r1=[1, 2, 3, 4, 5, 6, 7]), clients)
        for number in range(1, 6):
            rounds.run()
            calm(rounds)
            if kill and number == killed_after:
                state = decode_state(encode_state(rounds.strategy.export_state()))
                rounds.strategy = _clma()
                rounds.strategy.import_state(state)
        states.append(encode_state(rounds.strategy.export_state()))
        assert rounds.groups["c1"] == FAMILY
    assert states[0] == states[1]


def test_the_weights_of_two_cohorts_that_become_one_are_their_mean_by_members() -> None:
    clients = fleet_of(a=FAMILY, c=[8, 9])
    calm = _noisy_at_first(clients, 4)
    rounds = Rounds(_clma(r1=FAMILY), clients).run()
    calm(rounds)
    rounds.run().run()
    expected = 0.75 * rounds.mean([1, 2, 3])["w"] + 0.25 * rounds.mean([4])["w"]
    np.testing.assert_allclose(rounds.strategy.registry.params("c1")["w"], expected, atol=1e-5)


def test_an_adaptations_end_ends_the_watch() -> None:
    clients = fleet_of(a=FAMILY, c=[8, 9])
    calm = _noisy_at_first(clients, 4)
    rounds = Rounds(_clma(r1=FAMILY), clients).run()
    calm(rounds)
    rounds.strategy.end_adaptation()
    rounds.run().run().run()
    assert rounds.groups == {"root": [8, 9], "c1": [1, 2, 3], "c2": [4]}
