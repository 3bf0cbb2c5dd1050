from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray

from server_bridge.aggregation.robust import Aggregation, RuleName
from server_bridge.flower.clma import CLMA
from server_bridge.flower.grid import MqttGrid
from server_bridge.flower.records import cohort_name, to_record, to_tensors
from tests.flower.by_hand import Rounds, close, flags, fleet_of, grid_of, options
from tests.flower.memory_fleet import MemoryFleet, MemoryGateway, direction, initial_weights, towards
from tests.flower.memory_fleet import settings as grid_settings


def test_a_flag_in_the_first_round_parts_the_families_and_the_rest_stays_in_the_root() -> None:
    strategy = CLMA(flagged=flags(r1=range(1, 9)), **options())
    rounds = Rounds(strategy, fleet_of(a=[1, 2, 3, 4], b=[5, 6, 7, 8], c=[9, 10])).run()
    assert rounds.groups == {"root": [9, 10], "c1": [1, 2, 3, 4], "c2": [5, 6, 7, 8]}
    assert strategy.cohort_history == [strategy.registry.assignments]
    assert {move.reason for move in strategy.registry.round_moves if move.client == 1} == {"joined", "drifted"}
    for cohort, members in rounds.groups.items():
        close(strategy.registry.params(cohort), rounds.mean(members))
    assert {name: rounds.metrics[name] for name in rounds.metrics if name.startswith("clma-num")} == {
        "clma-num-cohorts": 3,
        "clma-num-drifted": 8,
        "clma-num-new-cohorts": 2,
        "clma-num-merged-cohorts": 0,
    }
    rounds.run()
    assert rounds.cohorts == {
        **dict.fromkeys([1, 2, 3, 4], "c1"),
        **dict.fromkeys([5, 6, 7, 8], "c2"),
        9: "root",
        10: "root",
    }


def test_each_client_is_sent_its_cohorts_weights() -> None:
    strategy = CLMA(flagged=flags(r1=[1, 2]), **options())
    rounds = Rounds(strategy, fleet_of(a=[1, 2], c=[3, 4])).run()
    models = {cohort: dict(strategy.registry.params(cohort)) for cohort in strategy.registry.cohort_ids}
    rounds.run()
    for node, cohort in rounds.cohorts.items():
        close(rounds.sent[node], models[cohort])
    assert rounds.cohorts == {1: "c1", 2: "c1", 3: "root", 4: "root"}


def test_without_a_controller_the_replies_say_who_drifted() -> None:
    clients = fleet_of(a=[1, 2], c=[3])
    clients[1].metrics["clma-drift"] = clients[2].metrics["clma-drift"] = 1
    assert Rounds(CLMA(**options()), clients).run().groups == {"root": [3], "c1": [1, 2]}


def test_the_controllers_flags_overrule_the_replies() -> None:
    clients = fleet_of(a=[1, 2], c=[3])
    clients[3].metrics["clma-drift"] = 1
    assert Rounds(CLMA(flagged=flags(r1=[1, 2]), **options()), clients).run().groups == {"root": [3], "c1": [1, 2]}


def test_unflagged_it_is_fedavg() -> None:
    clients = fleet_of(c=[1, 2, 3])
    clients[2].metrics["num-examples"] = 70
    rounds = Rounds(CLMA(**options()), clients)
    for _ in range(3):
        rounds.run()
        close(rounds.strategy.registry.params("root"), rounds.mean([1, 2, 3]))
        assert rounds.groups == {"root": [1, 2, 3]}


def test_unflagged_on_the_grid_it_equals_flowers_fedavg() -> None:
    def run(strategy: FedAvg) -> dict[str, NDArray[Any]]:
        members = {f"g{i}": MemoryGateway(towards(direction(i), 0.0, i), examples=10 * i) for i in (1, 2, 3)}
        result = strategy.start(
            MqttGrid(MemoryFleet(members), grid_settings()), to_record(initial_weights()), num_rounds=3
        )
        return to_tensors(result.arrays)

    close(run(CLMA()), run(FedAvg()))


def test_everybody_drifted_leaves_an_empty_root_with_its_weights() -> None:
    strategy = CLMA(flagged=flags(r1=[1, 2]), **options())
    rounds = Rounds(strategy, fleet_of(a=[1, 2])).run()
    assert rounds.groups == {"root": [], "c1": [1, 2]}
    close(strategy.registry.params("root"), initial_weights())


def test_flagged_clients_of_several_cohorts_regroup_and_emptied_cohorts_vanish() -> None:
    strategy = CLMA(flagged=flags(r1=[1, 2, 3, 4], r2=[1, 2, 5]), **options())
    rounds = Rounds(strategy, fleet_of(a=[1, 2], b=[3, 4], c=[5, 6])).run()
    assert rounds.groups == {"root": [5, 6], "c1": [1, 2], "c2": [3, 4]}
    rounds.run()
    assert "c1" not in rounds.groups
    assert rounds.groups["c2"] == [3, 4]
    assert rounds.groups["root"] == [6]
    assert strategy.registry.cohort_of(1) == strategy.registry.cohort_of(2) != strategy.registry.cohort_of(5)
    sources = {move.client: move.source for move in strategy.registry.round_moves}
    assert sources == {1: "c1", 2: "c1", 5: "root"}


def test_algorithm_2_fires_on_a_rise_above_gamma_and_never_in_the_first_round() -> None:
    clients = fleet_of(a=[1, 2], c=[3])
    rounds = Rounds(CLMA(loss_gamma=0.1, flagged=flags(), **options()), clients)
    for loss, drifted in [(9.0, False), (9.09, False), (0.5, False), (0.601, True)]:
        clients[1].metrics["clma-loss"] = loss
        rounds.run()
        assert (rounds.metrics["clma-num-drifted"] == 1) == drifted, loss
    assert rounds.groups == {"root": [2, 3], "c1": [1]}


def test_algorithm_2_never_moves_whom_this_adaptation_has_regrouped() -> None:
    clients = fleet_of(a=[1, 2], c=[3])
    strategy = CLMA(loss_gamma=0.1, flagged=flags(r1=[1, 2]), **options())
    rounds = Rounds(strategy, clients).run()
    assert strategy.regrouped == {1, 2}
    for loss in (2.0, 4.0):
        clients[1].metrics["clma-loss"] = loss
        assert rounds.run().groups == {"root": [3], "c1": [1, 2]}


def test_cohorts_merge_by_option_but_not_in_the_round_that_split_them() -> None:
    strategy = CLMA(flagged=flags(r1=[1, 2]), merge_cohorts_threshold=2.0, **options())
    rounds = Rounds(strategy, fleet_of(a=[1, 2], c=[3])).run()
    assert rounds.groups == {"root": [3], "c1": [1, 2]}
    rounds.run()
    assert rounds.groups == {"root": [1, 2, 3]}
    assert rounds.metrics["clma-num-merged-cohorts"] == 1
    off = Rounds(CLMA(flagged=flags(r1=[1, 2]), **options()), fleet_of(a=[1, 2], c=[3])).run().run()
    assert off.groups == {"root": [3], "c1": [1, 2]}


def test_cohort_names_come_from_outside() -> None:
    names = iter(["c41", "c42"])
    strategy = CLMA(flagged=flags(r1=range(1, 5)), new_cohort_id=lambda: next(names), **options())
    assert list(Rounds(strategy, fleet_of(a=[1, 2], b=[3, 4])).run().groups) == ["root", "c41", "c42"]


def test_evaluation_is_on_each_cohorts_weights() -> None:
    strategy = CLMA(flagged=flags(r1=[1, 2]), **options())
    clients = fleet_of(a=[1, 2], c=[3])
    Rounds(strategy, clients).run()
    messages = strategy.configure_evaluate(1, to_record(initial_weights()), ConfigRecord(), grid_of(clients))
    for message in messages:
        cohort = cohort_name(message.content.config_records["config"]["clma-cohort"])
        assert cohort == strategy.registry.cohort_of(message.metadata.dst_node_id)
        close(to_tensors(message.content.array_records["arrays"]), strategy.registry.params(cohort))


@pytest.mark.parametrize("rule", ["trimmed-mean", "median", "krum"])
def test_every_cohorts_mean_follows_the_rule(rule: RuleName) -> None:
    """Node 5 sends its update a thousandfold, in the root's mean; node 4 in a new cohort's."""
    clients = fleet_of(a=[1, 2, 3, 4], c=[5, 6, 7, 8, 9])
    for node in (4, 5):
        clients[node].change = {name: 1000 * tensor for name, tensor in clients[node].change.items()}
    strategy = CLMA(flagged=flags(r1=[1, 2, 3, 4]), aggregation=Aggregation(rule, 0.2), **options())
    rounds = Rounds(strategy, clients).run()
    (cohort,) = [name for name in strategy.registry.cohort_ids if name != "root"]
    for name, members in ((cohort, [1, 2, 3]), ("root", [6, 7, 8, 9])):
        honest = np.stack([rounds.got[node]["w"] for node in members])
        model = strategy.registry.params(name)["w"]
        assert (model >= honest.min(axis=0) - 1e-5).all()
        assert (model <= honest.max(axis=0) + 1e-5).all()
