from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from server_bridge.aggregation.lengths import LengthRule
from server_bridge.aggregation.opposition import OppositionRule
from server_bridge.flower.clma import CLMA
from server_bridge.flower.defence import Defence
from server_bridge.flower.engine import run_round
from server_bridge.flower.grid import MqttGrid
from server_bridge.flower.state import decode_state, encode_state
from server_bridge.flower.strategies import StrategySettings, make_strategy
from tests.flower.by_hand import Rounds, close, flags, fleet_of, options
from tests.flower.memory_fleet import MemoryFleet, MemoryGateway, direction, initial_weights, towards, with_update
from tests.flower.memory_fleet import settings as grid_settings

Model = dict[str, NDArray[Any]]


def _changed_by(factor: float) -> dict[int, Any]:
    """Three calm clients, the third of which sends a multiple of its change."""
    clients = fleet_of(c=[1, 2, 3])
    base = initial_weights()
    clients[3] = replace(
        clients[3],
        spoil=lambda model: {n: (base[n] + factor * (t - base[n])).astype(t.dtype) for n, t in model.items()},
    )
    return clients


def _length(model: Model, base: Model) -> float:
    return float(np.sqrt(sum(np.square(model[name] - base[name]).sum() for name in base)))


def test_twenty_times_as_long_counts_at_the_usual_length_and_is_noted() -> None:
    strategy = CLMA(defence=Defence(lengths=LengthRule()), **options())
    rounds = Rounds(strategy, _changed_by(20.0)).run()
    base = initial_weights()
    usual = np.mean([_length(rounds.got[node], base) for node in (1, 2)])
    third = {n: base[n] + (t - base[n]) * usual / _length(rounds.got[3], base) for n, t in rounds.got[3].items()}
    close(
        strategy.registry.params("root"),
        {name: np.mean([rounds.got[1][name], rounds.got[2][name], third[name]], axis=0) for name in base},
    )
    assert {node: why.reason for node, why in strategy.noted.items()} == {3: "clipped-update"}
    assert strategy.refused == {}
    assert strategy.reference is not None
    close(strategy.reference, strategy.registry.params("root"))


def test_in_a_cohort_just_begun_too() -> None:
    clients = fleet_of(a=[1, 2, 3], c=[4, 5])
    base = initial_weights()
    clients[3].spoil = lambda m: {n: (base[n] + 20 * (t - base[n])).astype(t.dtype) for n, t in m.items()}
    strategy = CLMA(defence=Defence(lengths=LengthRule()), flagged=flags(r1=[1, 2, 3]), **options())
    rounds = Rounds(strategy, clients).run()
    assert rounds.groups == {"root": [4, 5], "c1": [1, 2, 3]}
    assert set(strategy.noted) == {3}
    own = np.mean([_length(rounds.got[node], base) for node in (1, 2)])
    assert _length(strategy.registry.params("c1"), base) < 1.2 * own


def _flipping(client: int) -> dict[int, Any]:
    clients = fleet_of(a=[1, 2, 3])
    for each in clients.values():
        each.noise = 0.1
    clients[client].change = {name: -tensor for name, tensor in direction(1).items()}
    return clients


def test_a_turned_sign_in_a_cohort_of_three_is_parted_from_it_as_if_it_had_flagged() -> None:
    strategy = CLMA(defence=Defence(opposition=OppositionRule()), **options())
    rounds = Rounds(strategy, _flipping(2)).run()
    assert strategy.noted[2].reason == "opposing-update"
    assert strategy.refused == {}
    close(strategy.registry.params("root"), rounds.mean([1, 3]))
    assert rounds.groups == {"root": [1, 3], "c1": [2]}
    assert strategy.regrouped == {2}


def test_of_two_nobody_is_left_out() -> None:
    strategy = CLMA(defence=Defence(opposition=OppositionRule()), **options())
    clients = _flipping(2)
    del clients[3]
    Rounds(strategy, clients).run()
    assert strategy.refused == {}


def test_who_turns_in_a_cohort_that_it_was_grouped_into_is_left_out_over_a_restart_until_the_adaptation_ends() -> None:
    def made() -> CLMA:
        return CLMA(defence=Defence(opposition=OppositionRule()), flagged=flags(r1=[1, 2, 3]), **options())

    strategy, clients = made(), fleet_of(a=[1, 2, 3])
    for client in clients.values():
        client.noise = 0.1
    rounds = Rounds(strategy, clients).run()
    clients[2].change = {name: -tensor for name, tensor in direction(1).items()}
    rounds.clients = clients
    rounds.run()
    assert rounds.groups == {"root": [], "c1": [1, 2, 3]}
    assert "evidence -0.50" in strategy.refused[2].detail
    close(strategy.registry.params("c1"), rounds.mean([1, 3]))
    again = made()
    again.import_state(decode_state(encode_state(strategy.export_state())))
    clients[2].change = {name: np.zeros_like(tensor) for name, tensor in direction(1).items()}
    resumed = Rounds(again, clients)
    resumed.number = rounds.number
    assert resumed.run().strategy.refused[2].reason == "opposing-update"
    again.end_adaptation()
    assert resumed.run().strategy.refused == {}


def test_the_engine_names_gateways() -> None:
    shared = direction(1)
    members = {f"g{i}": MemoryGateway(towards(shared, 0.1, i)) for i in range(1, 7)}
    members["g2"].tamper = with_update(lambda delta: {name: 20 * tensor for name, tensor in delta.items()})
    members["g3"].tamper = with_update(lambda delta: {name: -tensor for name, tensor in delta.items()})
    strategy = make_strategy(StrategySettings(part_opposing=True))
    outcome = run_round(strategy, MqttGrid(MemoryFleet(members), grid_settings()), initial_weights(), 1, {}, 1.0)
    assert outcome.noted["g2"].startswith("clipped-update: 19.7 times as long")
    assert outcome.noted["g3"].startswith("opposing-update: works against the others")
    assert outcome.failed == {}
    assert outcome.assignments == {**{f"g{i}": "root" for i in range(1, 7)}, "g3": "c1"}
    assert outcome.regrouped == {"g3"}


@pytest.mark.parametrize("settings", [StrategySettings(), StrategySettings(name="clma-paper", part_opposing=True)])
def test_by_default_and_in_paper_mode_nobody_is_parted_for_working_against_the_rest(settings: StrategySettings) -> None:
    members = {f"g{i}": MemoryGateway(towards(direction(1), 0.1, i)) for i in range(1, 5)}
    members["g2"].tamper = with_update(lambda delta: {name: -20 * tensor for name, tensor in delta.items()})
    outcome = run_round(
        make_strategy(settings), MqttGrid(MemoryFleet(members), grid_settings()), initial_weights(), 1, {}, 1.0
    )
    assert outcome.failed == {}
    assert set(outcome.assignments.values()) == {"root"}
    assert set(outcome.noted) == (set() if settings.name == "clma-paper" else {"g2"})
