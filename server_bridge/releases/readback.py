"""Reading published blobs back as a gateway would: with a client of its own, from the broker."""

import queue
import time
from collections.abc import Iterable, Mapping, Sequence

from edge_agent.link.events import Connected, Received, SessionEvent, Subscription
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.errors import WireError
from edge_agent.wire.topics import FleetTopics, TopicKind, parse_topic
from server_bridge.errors import BrokerAway

BLOBS_AT_A_TIME = 16
CONNECT_TIMEOUT_S = 10.0
QUIET_S = 1.0
POLL_S = 0.05
_STOP_TIMEOUT_S = 2.0

Expected = Mapping[str, Sequence[str]]
"""A blob topic's digest to the SHA-256 of each of its messages, by index."""


class ReadBack:
    """Asks the broker for retained chunks and compares digests.

    Args:
        client_id: of the short-lived second client.
        quiet_s: silence after which a chunk counts as absent.
    """

    def __init__(
        self, settings: BrokerSettings, client_id: str, topics: FleetTopics, *, quiet_s: float = QUIET_S
    ) -> None:
        self._settings = settings
        self._client_id = client_id
        self._topics = topics
        self._quiet_s = quiet_s

    def absent(self, expected: Expected) -> set[str]:
        """Digests of which the broker does not hold every message.

        Raises:
            BrokerAway: the broker cannot be reached.
        """
        if not expected:
            return set()
        inbox: queue.Queue[SessionEvent] = queue.Queue(200)
        session = MqttSession(self._settings, self._client_id, clean_start=True, session_expiry_s=0, inbox=inbox)
        session.start()
        try:
            _await_connection(inbox)
            groups = _groups(list(expected), BLOBS_AT_A_TIME)
            return {digest for group in groups for digest in self._absent_of(session, inbox, expected, group)}
        finally:
            session.stop(_STOP_TIMEOUT_S)

    def _absent_of(
        self, session: MqttSession, inbox: "queue.Queue[SessionEvent]", expected: Expected, group: Sequence[str]
    ) -> set[str]:
        filters = [f"{self._topics.root}/all/blob/{digest}/+" for digest in group]
        for one in filters:
            session.subscribe(Subscription(one))
        wanted = {(digest, index) for digest in group for index in range(len(expected[digest]))}
        heard_s = time.monotonic()
        while wanted and time.monotonic() - heard_s < self._quiet_s:
            try:
                event = inbox.get(timeout=POLL_S)
            except queue.Empty:
                continue
            heard_s = time.monotonic()
            if isinstance(event, Received):
                wanted -= self._confirmed(event, expected)
        for one in filters:
            session.unsubscribe(one)
        return {digest for digest, _ in wanted}

    def _confirmed(self, event: Received, expected: Expected) -> set[tuple[str, int]]:
        try:
            topic = parse_topic(event.topic)
        except WireError:
            return set()
        digest, index = topic.digest, topic.index
        if topic.kind is not TopicKind.CHUNK or digest is None or index is None:
            return set()
        digests = expected.get(digest, ())
        if index >= len(digests) or sha256_hex(event.payload) != digests[index]:
            return set()
        return {(digest, index)}


def _await_connection(inbox: "queue.Queue[SessionEvent]") -> None:
    deadline_s = time.monotonic() + CONNECT_TIMEOUT_S
    while time.monotonic() < deadline_s:
        try:
            if isinstance(inbox.get(timeout=POLL_S), Connected):
                return
        except queue.Empty:
            continue
    raise BrokerAway("the broker cannot be reached to read blobs back")


def _groups(items: Sequence[str], size: int) -> Iterable[Sequence[str]]:
    return (items[start : start + size] for start in range(0, len(items), size))
