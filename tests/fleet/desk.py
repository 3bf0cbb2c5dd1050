"""Real parts around a session that only records, and a clock that only moves when told."""

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from edge_agent.errors import TransientError
from edge_agent.wire.blobs import BlobReference, make_reference
from edge_agent.wire.codec import decode
from edge_agent.wire.messages import ACK_CAP_BYTES, Ack, Command, open_command
from edge_agent.wire.topics import FleetTopics, TopicKind, parse_topic
from server_bridge.fleet.ingest import Ingest
from server_bridge.fleet.mqtt_fleet import MqttFleet
from server_bridge.fleet.post import Post
from server_bridge.fleet.registry import Registry, register
from server_bridge.store.store import Store, store_url

FLEET = "line1"
TOPICS = FleetTopics(FLEET)
BRIDGE_BOOT = "bridge-boot"
BUNDLE = "b" * 64
UPDATE_CAP_BYTES = 1_000_000


@dataclass
class Clock:
    """Seconds that pass when told."""

    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class RecordingSession:
    """Takes what would be published."""

    sent: list[tuple[str, bytes, bool]] = field(default_factory=list)
    full: bool = False

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> int:
        if self.full:
            raise TransientError("the queue is full")
        self.sent.append((topic, payload, retain))
        return len(self.sent)

    def acks(self, gateway: str) -> list[Ack]:
        topic = TOPICS.ack(gateway)
        return [decode(Ack, payload, cap_bytes=ACK_CAP_BYTES) for name, payload, _ in self.sent if name == topic]

    def commands(self, gateway: str) -> list[Command]:
        topic = TOPICS.command(gateway)
        return [open_command(payload, lambda *_: True) for name, payload, _ in self.sent if name == topic]

    def kinds(self) -> list[TopicKind]:
        return [parse_topic(topic).kind for topic, _, _ in self.sent]


@dataclass
class MemoryBlobs:
    """Publishes into a dict."""

    published: dict[str, bytes] = field(default_factory=dict)
    asked_again: list[str] = field(default_factory=list)

    def publish(self, data: bytes) -> BlobReference:
        reference, _ = make_reference(data)
        self.published[reference.digest] = data
        return reference

    def republish(self, reference: BlobReference) -> None:
        self.asked_again.append(reference.digest)


class Desk:
    """A bridge without a broker; ``Desk(same path)`` again is a restart."""

    def __init__(self, path: Path, gateways: tuple[str, ...] = ("gw1", "gw2")) -> None:
        self.clock = Clock()
        self.session = RecordingSession()
        self.blobs = MemoryBlobs()
        self.store = Store(store_url(path), path / "blobs")
        for gateway in gateways:
            register(self.store.gateways, gateway, 0.0)
        post = Post(self.session)
        registry = Registry(self.store.gateways, self.clock)
        self.fleet = MqttFleet(
            TOPICS,
            self.store,
            registry,
            post,
            self.blobs,
            lambda body: ("key", b"signature"),
            lambda bundle, graph: UPDATE_CAP_BYTES,
            BRIDGE_BOOT,
            monotonic=self.clock,
            wall=self.clock,
            random=Random(0),
        )
        self.ingest = Ingest(
            TOPICS, self.store, registry, self.fleet, post, BRIDGE_BOOT, monotonic=self.clock, wall=self.clock
        )

    def dropped(self) -> dict[tuple[str, str], int]:
        self.ingest.flush_drops()
        return self.store.drops.all()
