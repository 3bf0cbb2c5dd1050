"""Flower's Grid over the fleet: orders out, screened replies in."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import structlog
from flwr.app import ConfigRecord, Error, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from edge_agent.errors import TransientError
from server_bridge.fleet.transport import FleetTransport, Gateway
from server_bridge.flower.orders import Assignment, OrderBook
from server_bridge.flower.records import (
    ARRAYS_KEY,
    METRICS_KEY,
    REPLY_KEY,
    RUN_ID,
    Metrics,
    Run,
    common_metrics,
    prepare_process,
    set_message_id,
    to_metric_record,
    to_record,
)
from server_bridge.flower.replies import NodeResult, screen
from server_bridge.flower.settings import GridSettings
from server_bridge.flower.task_means import stand_in

FAILED = 0  # flwr's code for an unknown error: the reason is in the words
SNAPSHOT_S = 0.5  # flwr counts the nodes and samples them in two calls: both see one fleet
POLL_GAP_S = 5.0  # flwr asks every second while it waits; a longer gap is another wait
PULL_S = 3.0

logger = structlog.get_logger(__name__)


class MqttGrid(Grid):
    """Lets any message strategy of Flower run on the fleet.

    Node ids are those of registered gateways that are online and not known to run another bundle.
    Every message gets a reply: content, or an error naming the reason. Messages and replies are
    in the order of gateway ids, whatever order the strategy drew.

    Args:
        transport: the fleet.
        settings: the adaptation's orders.
        cancelled: asked while an exchange waits; true ends it with what has come.
        monotonic: seconds that only rise.
    """

    def __init__(
        self,
        transport: FleetTransport,
        settings: GridSettings,
        *,
        cancelled: Callable[[], bool] = lambda: False,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        prepare_process()
        self._transport = transport
        self._settings = settings
        self._cancelled = cancelled
        self._monotonic = monotonic
        self._run = Run.create_empty(RUN_ID)
        self._nodes: tuple[float, list[Gateway]] | None = None
        self._waiting: tuple[float, float] | None = None
        self._pushed: dict[str, Message] = {}
        self._last_exchange: list[NodeResult] = []

    @property
    def settings(self) -> GridSettings:
        """The adaptation's orders."""
        return self._settings

    @property
    def transport(self) -> FleetTransport:
        """The fleet."""
        return self._transport

    @property
    def last_exchange(self) -> list[NodeResult]:
        """How every message of the latest exchange ended, in the order of gateway ids."""
        return list(self._last_exchange)

    def set_run(self, run: Run) -> None:
        """Flower's own bookkeeping."""
        self._run = run

    @property
    def run(self) -> Run:
        """Flower's own bookkeeping."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """A message to a node."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Who can be asked now.

        Raises:
            TransientError: a strategy has waited for more gateways than come online for
                ``node_wait_s``; flwr itself would wait for ever.
        """
        now = self._monotonic()
        if self._nodes is None or now - self._nodes[0] > SNAPSHOT_S:
            self._watch_wait(now)
            self._nodes = (now, self._available())
        return [gateway.node_id for gateway in self._nodes[1]]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Accept messages; they are sent when their replies are pulled."""
        kept = list(messages)
        for number, message in enumerate(kept, start=len(self._pushed)):
            set_message_id(message, f"{self._settings.adaptation}-pushed-{number}-{message.metadata.dst_node_id}")
            self._pushed[message.metadata.message_id] = message
        return [message.metadata.message_id for message in kept]

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Replies that came within 3 s; an unanswered message may be pulled again."""
        wanted = {message_id: self._pushed[message_id] for message_id in message_ids if message_id in self._pushed}
        names = {(m.metadata.dst_node_id, m.metadata.message_type): name for name, m in wanted.items()}
        replies: list[Message] = []
        for reply, result in self._exchange(list(wanted.values()), PULL_S, self._settings.timeout_s):
            if result is not None and result.reason == "timeout":
                continue
            name = names[(reply.metadata.src_node_id, reply.metadata.message_type)]
            reply.metadata.__dict__["_reply_to_message_id"] = name
            del self._pushed[name]
            replies.append(reply)
        return replies

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Send messages and return one reply each, at the latest at the deadline.

        A reply is the taker's alone: what a strategy has read and dropped is free, else a round would
        hold every gateway's weights several times over.

        Args:
            messages: train and evaluate messages, at most one a node.
            timeout: seconds; the settings' if ``None``.

        Raises:
            ConfigError: a message that has no command.
            DataError: weights that do not fit the bundle.
        """
        self._waiting = None
        sent = list(messages)
        timeout_s = self._default_timeout_s(sent) if timeout is None else timeout
        return _handed_over(deque(reply for reply, _ in self._exchange(sent, timeout_s, timeout_s)))

    def _default_timeout_s(self, messages: Sequence[Message]) -> float:
        evaluations = all(message.metadata.message_type == MessageType.EVALUATE for message in messages)
        return self._settings.evaluate_timeout_s if evaluations else self._settings.timeout_s

    def _available(self) -> list[Gateway]:
        return [
            gateway
            for gateway in self._transport.gateways()
            if gateway.online and (gateway.state is None or gateway.state.bundle == self._settings.bundle)
        ]

    def _watch_wait(self, now: float) -> None:
        began, latest = self._waiting or (now, now)
        if now - latest > POLL_GAP_S:
            began = now
        self._waiting = (began, now)
        if now - began > self._settings.node_wait_s:
            self._waiting = None
            raise TransientError(
                f"the strategy waited {now - began:.0f} s for more than {len(self._available())} gateways",
                "lower its min_available_nodes, or bring gateways online",
            )

    def _exchange(
        self, messages: Sequence[Message], timeout_s: float, duration_s: float
    ) -> list[tuple[Message, NodeResult | None]]:
        gateways = {gateway.node_id: gateway for gateway in self._transport.gateways()}
        known = [message for message in messages if message.metadata.dst_node_id in gateways]
        strangers = [message for message in messages if message.metadata.dst_node_id not in gateways]
        orders = OrderBook(self._transport, self._settings)
        assignments = [orders.assign(message, gateways[message.metadata.dst_node_id], duration_s) for message in known]
        assignments.sort(key=lambda assignment: assignment.gateway.id)
        asked = [assignment.order for assignment in assignments]
        outcomes = self._transport.exchange(asked, timeout_s=timeout_s, cancelled=self._cancelled) if asked else []
        results = stand_in(screen(assignments, outcomes, self._settings))
        del outcomes  # with every update's bytes
        self._report(results)
        made = _replies(assignments, results)
        self._last_exchange = results
        replies: list[tuple[Message, NodeResult | None]] = list(zip(made, results, strict=True))
        return replies + [(_error(message, "unknown-node: no such gateway"), None) for message in strangers]

    def _report(self, results: Sequence[NodeResult]) -> None:
        for result in results:
            if not result.ok:
                logger.warning(
                    "reply_not_used",
                    gateway=result.gateway,
                    command=result.command_id,
                    reason=result.reason,
                    detail=result.detail,
                )


def _handed_over(replies: "deque[Message]") -> Iterator[Message]:
    while replies:
        yield replies.popleft()


def _replies(assignments: Sequence[Assignment], results: list[NodeResult]) -> list[Message]:
    """A reply each; the weights go from ``results`` into them."""
    good = {result.gateway: result.metrics for result in results if result.ok}
    shared = dict(zip(good, common_metrics(list(good.values())), strict=True))
    replies = []
    for place, assignment in enumerate(assignments):
        result, results[place] = results[place], replace(results[place], weights=None)
        set_message_id(assignment.message, result.command_id)
        if result.ok:
            replies.append(_reply(assignment.message, result, shared[result.gateway]))
        else:
            replies.append(_error(assignment.message, f"{result.reason}: {result.detail}"))
    return replies


def _reply(message: Message, result: NodeResult, shared: Metrics) -> Message:
    # The config record carries what the others lack: the strategies of flwr do not look at it.
    own = {name: value for name, value in result.metrics.items() if name not in shared}
    content = RecordDict(
        {
            METRICS_KEY: to_metric_record(shared),
            REPLY_KEY: ConfigRecord({**own, "gateway": result.gateway, "base": result.base}),
        }
    )
    if result.weights is not None:
        content[ARRAYS_KEY] = to_record(result.weights)
    reply = Message(content, reply_to=message)
    set_message_id(reply, f"{result.command_id}-reply")
    return reply


def _error(message: Message, reason: str) -> Message:
    return Message(Error(FAILED, reason), reply_to=message)
