"""A lasting MQTT 5 session: one thread, reconnection, bounded queues on both sides."""

import queue
import threading
from collections.abc import Callable, Sequence

import structlog

from edge_agent.link.events import SessionEvent, Subscription, Will
from edge_agent.link.network import NetworkLoop
from edge_agent.link.outgoing import Outgoing, PayloadTooLarge
from edge_agent.link.settings import Backoff, BrokerSettings, SessionOptions
from edge_agent.link.subscriptions import SubscriptionBook

MAX_PAYLOAD_BYTES = 512 * 1024
MAX_QUEUED_BYTES = 32 * 1024 * 1024
RECONNECT = Backoff(first_s=0.5, cap_s=30.0)

_log = structlog.get_logger(__name__)


class MqttSession:
    """An MQTT client that stays: it connects, subscribes and publishes again after every loss.

    Everything it has to tell goes into ``inbox``. All network work is done by one thread;
    every method may be called from any other.

    Args:
        clean_start: whether each connection begins with an empty session.
        session_expiry_s: how long the broker keeps the session while we are away.
        subscriptions: renewed after every connect.
        will: gives the will of the numbered connection about to be made; must not raise.
        receive_maximum: messages the broker may send ahead of the inbox.
        inbox: bounded; when it is full the broker is made to wait (see ``Intake``).
        max_queued: publications not yet settled; beyond, ``publish`` refuses.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        client_id: str,
        *,
        clean_start: bool,
        session_expiry_s: int,
        inbox: "queue.Queue[SessionEvent]",
        subscriptions: Sequence[Subscription] = (),
        will: Callable[[int], Will] | None = None,
        receive_maximum: int = 100,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
        max_queued: int = 1000,
        max_queued_bytes: int = MAX_QUEUED_BYTES,
        backoff: Backoff = RECONNECT,
    ) -> None:
        if inbox.maxsize <= 0:
            raise ValueError("the inbox must be bounded")
        self.client_id = client_id
        self.failure: BaseException | None = None
        self._max_payload_bytes = max_payload_bytes
        self._outgoing = Outgoing(max_count=max_queued, max_bytes=max_queued_bytes)
        self._subscriptions = SubscriptionBook(subscriptions)
        self._loop = NetworkLoop(
            settings,
            SessionOptions(client_id, clean_start, session_expiry_s, receive_maximum),
            will=will,
            backoff=backoff,
            inbox=inbox,
            outgoing=self._outgoing,
            subscriptions=self._subscriptions,
        )
        self._thread = threading.Thread(target=self._run, name=f"mqtt-{client_id}", daemon=True)

    @property
    def connected(self) -> bool:
        """Whether the broker has accepted and the connection is not known to be lost."""
        return self.alive and self._loop.connected

    @property
    def connection(self) -> int:
        """The number of the present or last connection attempt: 1, 2, ..."""
        return self._loop.connection

    @property
    def alive(self) -> bool:
        """Whether the network thread runs; if not, and nobody stopped it, ``failure`` says why."""
        return self._thread.is_alive()

    @property
    def heard_s(self) -> float:
        """When the broker last sent anything, if only a part of a packet; monotonic seconds."""
        return self._loop.heard_s

    @property
    def backlog(self) -> int:
        """Messages that wait for room in the inbox; at most about three times the Receive Maximum."""
        return self._loop.backlog

    @property
    def malformed_topics(self) -> int:
        """Messages dropped because their topic was no UTF-8."""
        return self._loop.malformed_topics

    def start(self) -> None:
        """Begin to connect; returns at once, whether the broker is there or not."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Send what is queued, say goodbye, end the thread. Returns whether all that was done in time."""
        self._loop.stop(0.7 * timeout_s)
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self.alive and self._outgoing.idle

    def publish(self, topic: str, payload: bytes, *, retain: bool = False, qos: int = 1, timeout_s: float = 0.0) -> int:
        """Queue a message; a ``Published`` with the returned token follows, perhaps after reconnections.

        Args:
            timeout_s: how long to wait for room. The thread that reads the inbox must not wait.

        Raises:
            PayloadTooLarge: over the cap; sending it again would not help.
            TransientError: the queue stayed full.
        """
        if not isinstance(payload, bytes):
            raise TypeError("a payload must be bytes")
        if not topic or "+" in topic or "#" in topic or "\0" in topic:
            raise ValueError(f"{topic!r} is no topic name")
        if len(payload) > self._max_payload_bytes:
            raise PayloadTooLarge(f"{len(payload)} bytes for {topic}, the cap is {self._max_payload_bytes}")
        token = self._outgoing.offer(topic, payload, retain=retain, qos=qos, timeout_s=timeout_s)
        self._loop.wake()
        return token

    def subscribe(self, subscription: Subscription) -> None:
        """Subscribe now and after every connect. Repeating it brings retained messages again (handling 0)."""
        self._subscriptions.add(subscription)
        self._loop.wake()

    def unsubscribe(self, topic_filter: str) -> None:
        """Unsubscribe; requests are carried out in the order they were made."""
        self._subscriptions.remove(topic_filter)
        self._loop.wake()

    def _run(self) -> None:
        try:
            self._loop.run()
        except BaseException as error:
            self.failure = error
            _log.exception("mqtt-thread-died", client_id=self.client_id)
