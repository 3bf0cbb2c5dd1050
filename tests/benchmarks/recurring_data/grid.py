"""Flower's grid with the fleet's clients behind it."""

from collections.abc import Iterable

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict

from edge_agent.wire.tensors import Weights
from server_bridge.flower.records import (
    ARRAYS_KEY,
    DRIFT_KEY,
    EXAMPLES_KEY,
    LOSS_KEY,
    METRICS_KEY,
    RELIABILITY_KEY,
    MetricValue,
    as_float32,
    to_record,
    to_tensors,
)
from tests.benchmarks.recurring_data.fleet import Fleet
from tests.benchmarks.recurring_data.patterns import CLIENTS
from tests.flower.grid_in_process import GridInProcess


class FleetGrid(GridInProcess):
    """Clients in this process; node ids from 1.

    Attributes:
        drifted: node ids whose detector flagged before this round.

    Args:
        fleet: the clients.
    """

    def __init__(self, fleet: Fleet) -> None:
        super().__init__()
        self.fleet = fleet
        self.drifted: set[int] = set()

    def get_node_ids(self) -> list[int]:
        """All clients, always."""
        return [client + 1 for client in range(CLIENTS)]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        """Every client's reply, in the order of the messages."""
        return [self._reply(message) for message in messages]

    def _reply(self, message: Message) -> Message:
        self.numbered(message)
        client = message.metadata.dst_node_id - 1
        base = as_float32(to_tensors(next(iter(message.content.array_records.values()))))
        self.fleet.cost.downloads += 1
        if message.metadata.message_type == "evaluate":
            return self._evaluated(message, client, base)
        return self._trained(message, client, base)

    def _trained(self, message: Message, client: int, base: Weights) -> Message:
        fleet = self.fleet
        window = fleet.window(client)
        metrics: dict[str, MetricValue] = {
            EXAMPLES_KEY: len(window.labels),
            LOSS_KEY: fleet.loss(client, base),
            DRIFT_KEY: int(message.metadata.dst_node_id in self.drifted),
        }
        asked = next(iter(message.content.config_records.values())).get(RELIABILITY_KEY, False)
        agreement = fleet.split_half(client, base, window) if asked else None
        content = RecordDict({ARRAYS_KEY: to_record(fleet.learn(client, base, window))})
        content[METRICS_KEY] = MetricRecord(metrics)
        if agreement is not None:
            content["aside"] = ConfigRecord({RELIABILITY_KEY: agreement})
        fleet.cost.uploads += 1
        return Message(content, reply_to=message)

    def _evaluated(self, message: Message, client: int, weights: Weights) -> Message:
        self.fleet.cost.evaluations += 1
        samples = self.fleet.present(client)
        metrics: dict[str, MetricValue] = {
            EXAMPLES_KEY: len(samples.labels),
            "loss": self.fleet.net.loss(weights, samples),
            "accuracy": self.fleet.net.accuracy(weights, samples),
        }
        return Message(RecordDict({METRICS_KEY: MetricRecord(metrics)}), reply_to=message)
