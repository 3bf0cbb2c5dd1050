"""Flower's Grid with clients in this process, and an account of each round."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from flwr.app import Message

from edge_agent.wire.tensors import Weights
from server_bridge.flower.records import CANDIDATE_KEY
from tests.flower.grid_in_process import GridInProcess

KIB_A_MIB = 1024


@dataclass(frozen=True, slots=True)
class Trained:
    """A local round: weights, mean loss over its steps, CPU time."""

    weights: Weights
    loss: float
    cpu_s: float


class GridClient(Protocol):
    """What answers messages; the same code whatever the strategy."""

    @property
    def number(self) -> int:
        """Which client, from 0."""

    def train(self, message: Message, server_round: int) -> tuple[Message, Trained]:
        """The reply to a training message."""

    def evaluate(self, message: Message, server_round: int) -> tuple[Message, float]:
        """The reply, with the accuracy of what was sent."""


@dataclass
class RoundAccount:
    """One round of one arm; clients by partition number.

    Attributes:
        accuracy: of the model that each client has after the round, on its test images.
        cohorts: the number of each client's cohort after the round; 0 under a strategy without.
        flagged: who flagged drift.
        losses: mean training loss.
        training_cpu_s: of all clients, also where it was paid in another arm.
        server_cpu_s: from the last reply to the next message: averages and cohorting.
        server_peak_mib: what that took at its peak beyond what was there before.
        facts: what the strategy says of who moved.
    """

    number: int
    accuracy: dict[int, float] = field(default_factory=dict)
    cohorts: dict[int, int] = field(default_factory=dict)
    flagged: list[int] = field(default_factory=list)
    losses: dict[int, float] = field(default_factory=dict)
    training_cpu_s: float = 0.0
    server_cpu_s: float = 0.0
    server_peak_mib: float = 0.0
    facts: dict[int, dict[str, Any]] = field(default_factory=dict)


class CountingGrid(GridInProcess):
    """Hands messages to clients; every round ends with an evaluation, after which ``ended`` is called."""

    def __init__(self, clients: Mapping[int, GridClient], ended: Callable[[RoundAccount], None]) -> None:
        super().__init__()
        self._clients, self._ended = clients, ended
        self._round = RoundAccount(0)
        self._began = (0.0, 0.0)

    def get_node_ids(self) -> list[int]:
        return sorted(self._clients)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        orders = [self.numbered(message) for message in messages]
        if CANDIDATE_KEY in orders[0].content.config_records["config"]:
            return [self._clients[o.metadata.dst_node_id].evaluate(o, _number(o))[0] for o in orders]
        if orders[0].metadata.message_type == "evaluate":
            return self._evaluate(orders)
        return self._train(orders)

    def _train(self, orders: list[Message]) -> list[Message]:
        self._round = RoundAccount(_number(orders[0]))
        replies = []
        for order in orders:
            client = self._clients[order.metadata.dst_node_id]
            reply, trained = client.train(order, self._round.number)
            self._round.losses[client.number] = trained.loss
            self._round.training_cpu_s += trained.cpu_s
            if reply.content.metric_records["metrics"]["clma-drift"]:
                self._round.flagged.append(client.number)
            replies.append(reply)
        self._round.flagged.sort()
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
        self._began = (time.process_time(), _resident_mib("VmRSS"))
        return replies

    def _evaluate(self, orders: list[Message]) -> list[Message]:
        cpu_s, before_mib = self._began
        self._round.server_cpu_s = time.process_time() - cpu_s
        self._round.server_peak_mib = max(0.0, _resident_mib("VmHWM") - before_mib)
        replies = []
        for order in sorted(orders, key=lambda order: order.metadata.dst_node_id):
            client = self._clients[order.metadata.dst_node_id]
            reply, accuracy = client.evaluate(order, self._round.number)
            cohort = order.content.config_records["config"].get("clma-cohort", 0)
            assert isinstance(cohort, int)
            self._round.accuracy[client.number] = accuracy
            self._round.cohorts[client.number] = cohort
            replies.append(reply)
        self._ended(self._round)
        return replies


def _number(message: Message) -> int:
    number = message.content.config_records["config"]["server-round"]
    assert isinstance(number, int)
    return number


def _resident_mib(field_name: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field_name}:")) / KIB_A_MIB
