"""The client that receives chunks: connected while somebody fetches, shared by all who do."""

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import structlog

from edge_agent.link.events import Connected, Received, SessionEvent, Subscription
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings

LINE_EVENTS = 32
INBOX_EVENTS = 32
PUT_TIMEOUT_S = 5.0
GET_TIMEOUT_S = 0.25
STOP_TIMEOUT_S = 2.0

_log = structlog.get_logger(__name__)


class FeedLine:
    """One fetch's side of the feed: its topics, and the messages that came for them."""

    def __init__(self, feed: "ChunkFeed", session: MqttSession) -> None:
        self.events: queue.Queue[Received | Connected] = queue.Queue(LINE_EVENTS)
        self._feed = feed
        self._session = session

    @property
    def connected(self) -> bool:
        """Whether the broker can be heard."""
        return self._session.connected

    @property
    def heard_s(self) -> float:
        """When the broker last sent anything, if only a part of a chunk; monotonic seconds."""
        return self._session.heard_s

    def subscribe(self, topic: str) -> None:
        """Ask for a retained message."""
        self._feed.route(topic, self)
        self._session.subscribe(Subscription(topic, retain_handling=0))

    def unsubscribe(self, topic: str) -> None:
        """Ask for it no more."""
        self._feed.unroute(topic)
        self._session.unsubscribe(topic)

    def ask_again(self, topic: str) -> None:
        """Unsubscribe and subscribe: only so does the broker send a retained message again, on any session."""
        self._session.unsubscribe(topic)
        self._session.subscribe(Subscription(topic, retain_handling=0))

    def put(self, event: Received | Connected) -> None:
        """On to the fetch; one that does not read for seconds loses the message and asks again."""
        with suppress(queue.Full):
            self.events.put(event, timeout=PUT_TIMEOUT_S)


class ChunkFeed:
    """A separate MQTT client: clean start, session expiry 0, a small Receive Maximum."""

    def __init__(self, settings: BrokerSettings, client_id: str, *, window: int) -> None:
        self._settings = settings
        self._client_id = client_id
        self._window = window
        self._lock = threading.Lock()
        self._lines: list[FeedLine] = []
        self._routes: dict[str, FeedLine] = {}
        self._session: MqttSession | None = None
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def users(self) -> int:
        """How many fetches share the client now."""
        return len(self._lines)

    @contextmanager
    def line(self) -> Iterator[FeedLine]:
        """Connect if need be; the last one out disconnects."""
        with self._lock:
            line = FeedLine(self, self._opened_session())
            self._lines.append(line)
        try:
            yield line
        finally:
            with self._lock:
                self._lines.remove(line)
                self._routes = {topic: other for topic, other in self._routes.items() if other is not line}
                if not self._lines:
                    self._close()

    def route(self, topic: str, line: FeedLine) -> None:
        """Messages of ``topic`` go to ``line``."""
        with self._lock:
            self._routes[topic] = line

    def unroute(self, topic: str) -> None:
        """Messages of ``topic`` go nowhere."""
        with self._lock:
            self._routes.pop(topic, None)

    def _opened_session(self) -> MqttSession:
        if self._session is not None and self._session.alive and self._thread is not None and self._thread.is_alive():
            return self._session
        inbox: queue.Queue[SessionEvent] = queue.Queue(INBOX_EVENTS)
        session = MqttSession(
            self._settings,
            self._client_id,
            clean_start=True,
            session_expiry_s=0,
            inbox=inbox,
            receive_maximum=self._window,
        )
        ending = threading.Event()
        thread = threading.Thread(
            target=self._dispatch, args=(inbox, ending), name=f"feed-{self._client_id}", daemon=True
        )
        self._session, self._ending, self._thread = session, ending, thread
        session.start()
        thread.start()
        return session

    def _close(self) -> None:
        self._ending.set()
        if self._session is not None:
            self._session.stop(STOP_TIMEOUT_S)
        self._session = None

    def _dispatch(self, inbox: "queue.Queue[SessionEvent]", ending: threading.Event) -> None:
        while not ending.is_set():
            try:
                event = inbox.get(timeout=GET_TIMEOUT_S)
            except queue.Empty:
                continue
            for line in self._readers(event):
                if isinstance(event, Received | Connected):
                    line.put(event)

    def _readers(self, event: SessionEvent) -> list[FeedLine]:
        with self._lock:
            if isinstance(event, Received):
                line = self._routes.get(event.topic)
                return [] if line is None else [line]
            return list(self._lines)
