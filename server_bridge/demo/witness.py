"""A client that listens to the whole fleet: counts payload bytes, and keeps the last release map."""

import queue
import threading
from dataclasses import dataclass

from edge_agent.link.events import Received, SessionEvent, Subscription
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from edge_agent.wire.topics import FleetTopics

INBOX_EVENTS = 5000
GET_TIMEOUT_S = 0.25


@dataclass(frozen=True, slots=True)
class Traffic:
    """Payload bytes since the start."""

    up: int = 0
    down_published: int = 0


class Witness:
    """Sees every message once, whoever sends it, and says nothing."""

    def __init__(self, settings: BrokerSettings, fleet: str) -> None:
        self._topics = FleetTopics(fleet)
        self._events: queue.Queue[SessionEvent] = queue.Queue(INBOX_EVENTS)
        self._settings = settings
        self._session: MqttSession | None = None
        self._thread = threading.Thread(target=self._run, name="witness", daemon=True)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._traffic = Traffic()
        self._release: bytes | None = None
        self.failure: BaseException | None = None

    def start(self) -> None:
        """Begin to listen."""
        self._session = MqttSession(
            self._settings,
            "demo-witness",
            clean_start=True,
            session_expiry_s=0,
            subscriptions=[Subscription(f"{self._topics.root}/#")],
            inbox=self._events,
        )
        self._session.start()
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Stop listening; nothing to do if it never began or has ended."""
        self._stopping.set()
        if self._session is not None:
            self._session.stop(timeout_s)
            self._thread.join(timeout_s)

    @property
    def connected(self) -> bool:
        """Whether it listens already."""
        return self._session is not None and self._session.connected

    @property
    def traffic(self) -> Traffic:
        """What was sent so far."""
        with self._lock:
            return self._traffic

    @property
    def release(self) -> bytes | None:
        """The release map published last, whoever published it."""
        with self._lock:
            return self._release

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                try:
                    event = self._events.get(timeout=GET_TIMEOUT_S)
                except queue.Empty:
                    continue
                if isinstance(event, Received):
                    self._take(event)
        except Exception as error:
            self.failure = error

    def _take(self, message: Received) -> None:
        up = message.topic.startswith(f"{self._topics.root}/up/")
        size = len(message.payload)
        with self._lock:
            now = self._traffic
            self._traffic = Traffic(now.up + size * up, now.down_published + size * (not up))
            if message.topic == self._topics.release and size:
                self._release = message.payload
