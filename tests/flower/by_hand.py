"""CLMA round by round, with clients that reply whatever a test wants."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from server_bridge.fleet.transport import Order
from server_bridge.flower.clma import CLMA
from server_bridge.flower.fedavg_options import FedAvgOptions
from server_bridge.flower.grid import MqttGrid
from server_bridge.flower.records import cohort_name, set_message_id, to_record, to_tensors
from tests.flower.memory_fleet import Judge, MemoryFleet, MemoryGateway, direction, initial_weights
from tests.flower.memory_fleet import settings as grid_settings

A, B, CALM = direction(1), direction(2), direction(3, 0.1)
Model = Mapping[str, NDArray[Any]]
Flags = Callable[[int], set[int]]
Metrics = dict[str, int | float | list[int] | list[float]]


@dataclass
class Client:
    """A client that adds a change and some noise of its own to what it is sent."""

    change: Model = field(default_factory=lambda: CALM)
    noise: float = 0.3
    metrics: Metrics = field(default_factory=lambda: {"num-examples": 10, "clma-drift": 0, "clma-loss": 0.5})
    spoil: Callable[[dict[str, NDArray[Any]]], dict[str, NDArray[Any]]] = lambda model: model
    away: bool = False
    judge: Judge = lambda _: {}


class _Numbered(MemoryFleet):
    """Gateway g007 has node id 7."""

    def node_id(self, gateway: str) -> int:
        return int(gateway[1:])


class Rounds:
    """Runs a strategy by hand, so that any reply can be made."""

    def __init__(self, strategy: CLMA, clients: Mapping[int, Client]) -> None:
        self.strategy, self.clients = strategy, dict(clients)
        self.number = 0
        self.sent: dict[int, dict[str, NDArray[Any]]] = {}
        self.cohorts: dict[int, str] = {}
        self.got: dict[int, dict[str, NDArray[Any]]] = {}
        self.metrics: dict[str, Any] = {}
        self.arrays: ArrayRecord | None = None
        self.evaluations = 0

    def run(self, order: Sequence[int] | None = None) -> "Rounds":
        self.number += 1
        grid = grid_of(self.clients)
        messages = {
            message.metadata.dst_node_id: message
            for message in self.strategy.configure_train(
                self.number, to_record(initial_weights()), ConfigRecord(), grid
            )
        }
        self.evaluations += len(grid_orders(grid))
        replies = [self._reply(messages[node]) for node in (order or sorted(messages)) if not self.clients[node].away]
        self.arrays, metrics = self.strategy.aggregate_train(self.number, replies)
        self.metrics = {} if metrics is None else dict(metrics)
        return self

    def _reply(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        client = self.clients[node]
        set_message_id(message, str(node))
        self.sent[node] = to_tensors(message.content.array_records["arrays"])
        self.cohorts[node] = cohort_name(message.content.config_records["config"]["clma-cohort"])
        rng = np.random.default_rng([node, self.number])
        model = {
            name: (base + client.change[name] + client.noise * rng.normal(size=base.shape)).astype(np.float32)
            for name, base in self.sent[node].items()
        }
        self.got[node] = model
        record = to_record(client.spoil(dict(model)))
        return Message(RecordDict({"arrays": record, "metrics": MetricRecord(dict(client.metrics))}), reply_to=message)

    @property
    def groups(self) -> dict[str, list[int]]:
        registry = self.strategy.registry
        return {cohort: registry.members(cohort) for cohort in registry.cohort_ids}

    def mean(self, nodes: Iterable[int]) -> dict[str, NDArray[Any]]:
        chosen = list(nodes)
        weights = [self.clients[node].metrics["num-examples"] for node in chosen]
        return {n: np.average([self.got[c][n] for c in chosen], axis=0, weights=weights) for n in initial_weights()}


def options() -> FedAvgOptions:
    return FedAvgOptions(min_train_nodes=1, min_evaluate_nodes=1, min_available_nodes=1)


def fleet_of(**nodes: Sequence[int]) -> dict[int, Client]:
    """Clients by family: a and b drift their own ways, c does not."""
    changes = {"a": A, "b": B, "c": CALM}
    return {node: Client(changes[family]) for family, members in nodes.items() for node in members}


def flags(**rounds: Iterable[int]) -> Flags:
    """r1=[...], r2=[...]: who is flagged in which round."""
    return lambda number: set(rounds.get(f"r{number}", ()))


def close(left: Model, right: Model) -> None:
    for name in right:
        np.testing.assert_allclose(left[name], right[name], atol=1e-5)


def grid_orders(grid: MqttGrid) -> list[Order]:
    """What a grid of ours has sent."""
    fleet = grid.transport
    assert isinstance(fleet, MemoryFleet)
    return fleet.orders


def grid_of(clients: Mapping[int, Client]) -> MqttGrid:
    gateways = {
        f"g{node:03}": MemoryGateway(lambda base, order: base, judge=client.judge, silent=client.away)
        for node, client in clients.items()
    }
    return MqttGrid(_Numbered(gateways), grid_settings())
