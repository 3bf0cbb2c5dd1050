"""The other end of a link, for tests: a publisher of blobs and a listener."""

import queue
import time

from edge_agent.link.events import Published, Received, SessionEvent, Subscription
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import Backoff, BrokerSettings
from edge_agent.wire.blobs import BlobReference, chunks, make_reference
from edge_agent.wire.topics import FleetTopics

TOPICS = FleetTopics("fleet")
QUICK = Backoff(first_s=0.05, cap_s=0.2)
WAIT_S = 60.0


class Publisher:
    """Publishes blobs as the bridge does, and hears what is subscribed to."""

    def __init__(self, port: int, *filters: str) -> None:
        self.inbox: queue.Queue[SessionEvent] = queue.Queue(10_000)
        self.session = MqttSession(
            BrokerSettings("127.0.0.1", port),
            "publisher",
            clean_start=True,
            session_expiry_s=0,
            inbox=self.inbox,
            subscriptions=[Subscription(one) for one in filters],
            backoff=QUICK,
        )
        self.session.start()

    def retain(self, topic: str, payload: bytes) -> None:
        """Publish one retained message and wait for the broker's answer."""
        token = self.session.publish(topic, payload, retain=True)
        until_s = time.monotonic() + WAIT_S
        while time.monotonic() < until_s:
            event = self.inbox.get(timeout=WAIT_S)
            if isinstance(event, Published) and event.token == token:
                assert event.ok
                return
        raise AssertionError("no PUBACK")

    def blob(self, data: bytes, *, without: tuple[int, ...] = ()) -> BlobReference:
        """Publish a blob's chunk list and chunks, but some."""
        reference, encoded = make_reference(data, 16384)
        self.retain(TOPICS.chunk(reference.chunk_list, 0), encoded)
        for index, chunk in enumerate(chunks(data, 16384)):
            if index not in without:
                self.retain(TOPICS.chunk(reference.digest, index), chunk)
        return reference

    def hear(self, count: int, timeout_s: float = WAIT_S) -> list[Received]:
        """The next ``count`` messages."""
        heard: list[Received] = []
        until_s = time.monotonic() + timeout_s
        while len(heard) < count:
            try:
                event = self.inbox.get(timeout=max(0.01, until_s - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"heard {len(heard)} of {count}") from None
            if isinstance(event, Received):
                heard.append(event)
        return heard

    def close(self) -> None:
        """End the session."""
        self.session.stop(2)
        assert self.session.failure is None
