"""Rounds in which gateways work on different tasks: each tensor's mean is of those that trained it."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_agent.wire.messages import Train
from edge_agent.wire.tensors import Weights
from server_bridge.flower.engine import run_round
from server_bridge.flower.grid import MqttGrid
from server_bridge.flower.settings import GridSettings
from server_bridge.flower.strategies import StrategyName, StrategySettings, make_strategy
from tests.flower.memory_fleet import SPECS, Learn, MemoryFleet, MemoryGateway, direction, initial_weights, settings

GRAPHS = {"w-adam": SPECS[:1], "b-adam": SPECS[1:]}


def trains(name: str, delta: NDArray[np.float32]) -> Learn:
    """A gateway whose graph trains one tensor."""

    def learn(base: Weights, order: Train) -> Weights:
        assert order.training_graph == f"{name}-adam"
        return {name: delta}

    return learn


def mixed(gateways: Mapping[str, str]) -> GridSettings:
    """``w-adam`` for all but those named."""
    plain = settings()
    return replace(
        plain, training_graph="w-adam", carried=GRAPHS["w-adam"], gateway_graphs=gateways, graph_carries=GRAPHS
    )


def after(fleet: MemoryFleet, orders: GridSettings, name: StrategyName = "fedavg") -> tuple[Weights, dict[str, str]]:
    strategy = make_strategy(StrategySettings(name=name))
    outcome = run_round(strategy, MqttGrid(fleet, orders), initial_weights(), 1, {}, 1.0)
    return outcome.arrays, outcome.failed


def test_each_tasks_tensors_are_averaged_over_its_own_gateways_by_examples() -> None:
    one, two, three = (direction(seed) for seed in range(3))
    fleet = MemoryFleet(
        {
            "g1": MemoryGateway(trains("w", one["w"]), examples=100),
            "g2": MemoryGateway(trains("w", two["w"]), examples=300),
            "g3": MemoryGateway(trains("b", three["b"]), examples=50),
        }
    )
    arrays, failed = after(fleet, mixed({"g3": "b-adam"}))
    base = initial_weights()
    assert failed == {}
    np.testing.assert_allclose(arrays["w"], base["w"] + (one["w"] + 3 * two["w"]) / 4, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(arrays["b"], base["b"] + three["b"], rtol=1e-5, atol=1e-6)


def test_an_update_has_its_own_graphs_tensors_or_is_refused() -> None:
    fleet = MemoryFleet(
        {"g1": MemoryGateway(trains("w", direction(1)["w"])), "g2": MemoryGateway(lambda base, order: {"w": base["w"]})}
    )
    arrays, failed = after(fleet, mixed({"g2": "b-adam"}))
    assert list(failed) == ["g2"]
    assert "missing tensor 'b'" in failed["g2"]
    np.testing.assert_array_equal(arrays["b"], initial_weights()["b"])


def test_a_task_that_nobody_trained_stays_bit_for_bit() -> None:
    fleet = MemoryFleet({name: MemoryGateway(trains("w", direction(k)["w"])) for k, name in enumerate(["g1", "g2"])})
    arrays, _ = after(fleet, mixed({}))
    np.testing.assert_array_equal(arrays["b"], initial_weights()["b"])


def test_long_updates_of_one_task_are_not_judged_by_anothers() -> None:
    """A task's block may move a hundred times as far as another's."""
    small, big = direction(1, 0.001)["w"], direction(2, 1.0)["b"]
    members = {f"g{k}": MemoryGateway(trains("w", (1 + k / 10) * small)) for k in range(3)}
    fleet = MemoryFleet(members | {"g8": MemoryGateway(trains("b", big)), "g9": MemoryGateway(trains("b", 1.1 * big))})
    assert after(fleet, mixed({"g8": "b-adam", "g9": "b-adam"}))[1] == {}
    fleet = MemoryFleet(members | {"g3": MemoryGateway(trains("w", 5000 * small))})
    assert list(after(fleet, mixed({}))[1]) == ["g3"]


@pytest.mark.parametrize("name", ["fedavg", "fedadam"])
def test_strategies_see_the_same_as_if_each_task_had_been_alone(name: StrategyName) -> None:
    one, two = direction(1)["w"], direction(2)["b"]
    both = MemoryFleet({"g1": MemoryGateway(trains("w", one)), "g2": MemoryGateway(trains("b", two), examples=7)})
    together, _ = after(both, mixed({"g2": "b-adam"}), name)
    alone, _ = after(MemoryFleet({"g1": MemoryGateway(trains("w", one))}), mixed({}), name)
    np.testing.assert_allclose(together["w"], alone["w"], rtol=1e-6, atol=1e-7)
