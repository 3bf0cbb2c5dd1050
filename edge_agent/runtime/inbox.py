"""The link's inbox: each event goes to the part that owns it."""

import queue
from collections.abc import Callable
from dataclasses import dataclass

import structlog

from edge_agent.errors import StorageError
from edge_agent.link.events import Connected, Disconnected, Published, Received, SessionEvent
from edge_agent.link.service import Pulse
from edge_agent.runtime.part import ThreadPart
from edge_agent.wire.codec import decode
from edge_agent.wire.errors import WireError
from edge_agent.wire.messages import ACK_CAP_BYTES, BRIDGE_CAP_BYTES, Ack, BridgePresence
from edge_agent.wire.topics import TopicKind, parse_topic

GET_TIMEOUT_S = 0.25
INBOX_EVENTS = 2000
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Receivers:
    """Who takes what; none of them blocks for long or raises for content."""

    connected: Callable[[int], None]
    disconnected: Callable[[Disconnected], None]
    published: Callable[[Published], None]
    command: Callable[[bytes, bool], None]
    ack: Callable[[Ack], None]
    release: Callable[[bytes], None]
    bridge: Callable[[BridgePresence], None]


class Inbox(ThreadPart):
    """One thread that reads the session's events and passes them on.

    Malformed ones are counted and dropped, and so is what the disk refuses: its sender has no
    answer and sends it again.
    """

    def __init__(self, fleet: str, events: "queue.Queue[SessionEvent]", receivers: Receivers) -> None:
        super().__init__("inbox")
        self._fleet = fleet
        self._events = events
        self._receivers = receivers
        self.pulse = Pulse()
        self.malformed: dict[str, int] = {}
        self.not_stored = 0

    def _work(self) -> None:
        while not self._stopping.is_set():
            self.pulse.beat()
            try:
                event = self._events.get(timeout=GET_TIMEOUT_S)
            except queue.Empty:
                continue
            self._pass_on(event)

    def _pass_on(self, event: SessionEvent) -> None:
        if isinstance(event, Received):
            try:
                self._receive(event)
            except WireError as error:
                self.malformed[error.what] = self.malformed.get(error.what, 0) + 1
                _log.warning("message_dropped", topic=event.topic[:200], problem=str(error)[:300])
            except StorageError as error:
                self.not_stored += 1
                _log.error("message_not_stored", topic=event.topic[:200], problem=str(error))
        elif isinstance(event, Connected):
            self._receivers.connected(event.connection)
        elif isinstance(event, Disconnected):
            self._receivers.disconnected(event)
        else:
            self._receivers.published(event)

    def _receive(self, message: Received) -> None:
        topic = parse_topic(message.topic)
        if topic.fleet != self._fleet:
            raise WireError("topic", f"fleet {topic.fleet!r} is not ours")
        if topic.kind is TopicKind.COMMAND:
            self._receivers.command(message.payload, message.retain)
        elif topic.kind is TopicKind.ACK:
            self._receivers.ack(decode(Ack, message.payload, cap_bytes=ACK_CAP_BYTES))
        elif topic.kind is TopicKind.RELEASE:
            self._receivers.release(message.payload)
        elif topic.kind is TopicKind.BRIDGE:
            self._receivers.bridge(decode(BridgePresence, message.payload, cap_bytes=BRIDGE_CAP_BYTES))
        else:
            raise WireError("topic", f"{topic.kind} is not for a gateway")
