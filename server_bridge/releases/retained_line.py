"""The publisher's MQTT session: retained messages out and acknowledged, release maps in."""

import queue
import threading
import time
from collections.abc import Callable, Sequence

import structlog

from edge_agent.errors import TransientError
from edge_agent.link.events import Connected, Disconnected, Published, Received, SessionEvent, Subscription
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from edge_agent.wire.topics import FleetTopics
from server_bridge.errors import BrokerAway

INBOX_EVENTS = 2000
ANSWERS_KEPT = 20_000
POLL_S = 0.2

_log = structlog.get_logger(__name__)


class RetainedLine:
    """Publishes retained messages and waits for the broker's word on each.

    Args:
        on_connected, on_map: called on this line's thread; must not block.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        client_id: str,
        topics: FleetTopics,
        *,
        on_connected: Callable[[], None],
        on_map: Callable[[bytes], None],
    ) -> None:
        self.failure: BaseException | None = None
        self._topics = topics
        self._on_connected = on_connected
        self._on_map = on_map
        self._inbox: queue.Queue[SessionEvent] = queue.Queue(INBOX_EVENTS)
        self._session = MqttSession(
            settings,
            client_id,
            clean_start=True,
            session_expiry_s=0,
            inbox=self._inbox,
            subscriptions=[Subscription(topics.release)],
        )
        self._answers: dict[int, Published] = {}
        self._answered = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="retained-line", daemon=True)

    @property
    def connected(self) -> bool:
        """Whether the broker is there, as far as we know."""
        return self._session.connected

    @property
    def alive(self) -> bool:
        """Whether both threads run."""
        return self._thread.is_alive() and self._session.alive

    def start(self) -> None:
        """Begin to connect."""
        self._session.start()
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Send what is queued and end; returns whether it ended in time."""
        ended = self._session.stop(timeout_s)
        self._stopping.set()
        self._thread.join(timeout_s)
        return ended and not self._thread.is_alive()

    def publish(self, messages: Sequence[tuple[str, bytes]], *, timeout_s: float) -> None:
        """Publish retained messages and wait until the broker has taken all of them.

        Args:
            messages: (topic, payload); an empty payload clears the topic.

        Raises:
            TransientError: the broker is away, refuses one, or the time is over.
        """
        if not self.connected:
            raise BrokerAway("the broker is away", "it is tried again when the broker is back")
        deadline_s = time.monotonic() + timeout_s
        tokens = [
            self._session.publish(topic, payload, retain=True, timeout_s=max(0.0, deadline_s - time.monotonic()))
            for topic, payload in messages
        ]
        for token, (topic, _) in zip(tokens, messages, strict=True):
            answer = self._answer(token, deadline_s)
            if not answer.ok:
                raise TransientError(f"the broker refuses {topic}: {answer.reason}", "check the bridge's rights")

    def _answer(self, token: int, deadline_s: float) -> Published:
        with self._answered:
            while token not in self._answers:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    raise BrokerAway("the broker does not acknowledge in time")
                self._answered.wait(min(left_s, POLL_S))
            return self._answers.pop(token)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    event = self._inbox.get(timeout=POLL_S)
                except queue.Empty:
                    continue
                self._handle(event)
        except BaseException as error:
            self.failure = error
            _log.exception("retained-line-died")

    def _handle(self, event: SessionEvent) -> None:
        if isinstance(event, Published):
            with self._answered:
                self._answers[event.token] = event
                while len(self._answers) > ANSWERS_KEPT:
                    del self._answers[next(iter(self._answers))]
                self._answered.notify_all()
        elif isinstance(event, Connected):
            self._on_connected()
        elif isinstance(event, Received) and event.topic == self._topics.release:
            self._on_map(event.payload)
        elif isinstance(event, Disconnected) and event.taken_over:
            _log.error("publisher-taken-over", reason=event.reason)
