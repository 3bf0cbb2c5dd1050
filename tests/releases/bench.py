"""A fleet's folder with the publisher over it, and who else is on its broker."""

import queue
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edge_agent.link.events import Published, Received, SessionEvent, Subscription
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.topics import FleetTopics
from server_bridge.releases.publisher import Publisher, PublisherParts
from server_bridge.releases.record import FileReleaseBook
from server_bridge.releases.signer_client import SignerClient
from server_bridge.store.blobs import BlobFolder

TOPICS = FleetTopics("plant")
WAIT_S = 60.0


@dataclass
class Bridge:
    """A fleet's folder and the publisher over it."""

    home: Path
    port: int
    alarms: list[tuple[str, Mapping[str, str | int]]] = field(default_factory=list)

    def open(self) -> Publisher:
        self.signer = SignerClient(self.home / "keys", self.home / "bundles")
        parts = PublisherParts(
            root=(self.home / "root.json").read_bytes(),
            book=FileReleaseBook(self.home / "releases"),
            signer=self.signer,
            blobs=BlobFolder(self.home / "blobs"),
            ledger=self.home / "retained.json",
        )
        self.publisher = Publisher(
            BrokerSettings("127.0.0.1", self.port),
            "bridge.releases",
            parts,
            on_alarm=lambda kind, facts: self.alarms.append((kind, facts)),
        )
        self.publisher.start()
        return self.publisher

    def close(self) -> None:
        self.publisher.stop(30.0)
        assert self.publisher.failure is None
        self.signer.stop()


class Listener:
    """Hears ``all/release``, and publishes what a stranger might."""

    def __init__(self, port: int) -> None:
        self.inbox: queue.Queue[SessionEvent] = queue.Queue(1000)
        self.session = MqttSession(
            BrokerSettings("127.0.0.1", port),
            "listener",
            clean_start=True,
            session_expiry_s=0,
            inbox=self.inbox,
            subscriptions=[Subscription(TOPICS.release)],
        )
        self.session.start()
        self.maps: list[bytes] = []

    def publish(self, payload: bytes) -> None:
        self.session.publish(TOPICS.release, payload, retain=True, timeout_s=WAIT_S)

    def heard(self) -> list[bytes]:
        while True:
            try:
                event = self.inbox.get_nowait()
            except queue.Empty:
                return self.maps
            if isinstance(event, Received):
                self.maps.append(event.payload)

    def last_is(self, digest: str) -> bool:
        maps = self.heard()
        return bool(maps) and sha256_hex(maps[-1]) == digest

    def settled(self, token: int) -> bool:
        """Whether the broker has taken what was published."""
        events = list(self.inbox.queue)
        return any(isinstance(event, Published) and event.token == token for event in events)

    def close(self) -> None:
        self.session.stop(2.0)


def eventually(truth: Callable[[], bool], *, timeout_s: float = WAIT_S) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not truth():
        assert time.monotonic() < deadline_s, "it did not come about"
        time.sleep(0.05)
