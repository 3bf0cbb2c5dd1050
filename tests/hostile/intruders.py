"""Registered gateways that do not follow the protocol, each over its own connection."""

import queue
import random
import threading
import time
from collections.abc import Iterator

from edge_agent.errors import TransientError
from edge_agent.link.events import SessionEvent
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from edge_agent.wire.blobs import ChunkList, sha256_hex
from edge_agent.wire.codec import encode
from edge_agent.wire.messages import ChunkGrant, Command, ErrorEvent, Event, Train, TrainResult, UpdateManifest
from edge_agent.wire.messages.reply import ReplyResult
from edge_agent.wire.topics import FleetTopics
from tests.fleet.scripted import ScriptedGateway
from tests.fuzz.mutation import mutated

Publication = tuple[str, bytes, bool]
CHUNK = bytes(128 * 1024)
EVENTS, CHUNKS, RETAINED, GARBAGE = 10_000, 600, 3_000, 2_000
EVENTS_HZ = 400.0
HUGE_BYTES = 100 * 1024 * 1024


class Flooder:
    """Publishes what it is given as fast as the broker takes it, or at a rate, then says so."""

    def __init__(
        self, broker: BrokerSettings, gateway: str, publications: Iterator[Publication], *, rate_hz: float | None = None
    ) -> None:
        self.sent = 0
        self.done = threading.Event()
        self._publications = publications
        self._rate_hz = rate_hz
        self._stopping = threading.Event()
        self._inbox: queue.Queue[SessionEvent] = queue.Queue(1000)
        self._session = MqttSession(broker, gateway, clean_start=True, session_expiry_s=0, inbox=self._inbox)
        self._thread = threading.Thread(target=self._run, name=f"flooder-{gateway}", daemon=True)

    def start(self) -> None:
        self._session.start()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(5.0)
        self._session.stop(2.0)

    def _run(self) -> None:
        began_s = time.monotonic()
        for topic, payload, retain in self._publications:
            while not self._send(topic, payload, retain):
                if self._stopping.is_set():
                    return
            self.sent += 1
            if self._rate_hz is not None:
                self._stopping.wait(max(0.0, began_s + self.sent / self._rate_hz - time.monotonic()))
        self.done.set()

    def _send(self, topic: str, payload: bytes, retain: bool) -> bool:
        while not self._inbox.empty():
            self._inbox.get_nowait()
        try:
            self._session.publish(topic, payload, retain=retain, timeout_s=0.1)
        except TransientError:
            return False
        return True


def events(topics: FleetTopics, gateway: str) -> Iterator[Publication]:
    """10,000 well-formed events."""
    body = ErrorEvent(place="flood", problem="x" * 300)
    for number in range(EVENTS):
        event = Event(gateway=gateway, epoch="flood", sequence=number, low=number, time_s=1.0, body=body)
        yield topics.event(gateway), encode(event), False


def ungranted_chunks(topics: FleetTopics, gateway: str) -> Iterator[Publication]:
    """79 MB of chunks that nobody asked for."""
    for number in range(CHUNKS):
        yield topics.upload_chunk(gateway, sha256_hex(str(number).encode()), number), CHUNK, False


def retained(topics: FleetTopics, gateway: str) -> Iterator[Publication]:
    """3,000 retained messages: on rows of the contract, on none, and in another fleet's tree."""
    for number in range(RETAINED):
        places = (
            topics.upload_chunk(gateway, sha256_hex(str(number).encode()), 0),
            f"{topics.root}/up/{gateway}/blob/no-digest/{number}",
            FleetTopics(f"fleet{number}").state(gateway),
        )
        yield places[number % 3], b"x" * 2000, True


def garbage(topics: FleetTopics, gateway: str) -> Iterator[Publication]:
    """Malformed everything, on every row."""
    rng = random.Random(7)
    seeds = [payload for _, (_, payload, _) in zip(range(3), events(topics, gateway), strict=False)]
    rows = [topics.event(gateway), topics.state(gateway), topics.presence(gateway), topics.reply(gateway)]
    rows += [topics.upload_chunk(gateway, "a" * 64, 0), f"{topics.root}/up/{gateway}/nothing"]
    for number in range(GARBAGE):
        payload = mutated(rng, seeds)[: 400 * 1024]
        yield rows[number % len(rows)], payload or b"\x00", number % 7 == 0


class Liar(ScriptedGateway):
    """Answers a train command with an update of 100 MB: the manifest says so, or says 3,000 bytes."""

    def __init__(self, broker: BrokerSettings, fleet: str, gateway: str, *, says_bytes: int) -> None:
        super().__init__(broker, fleet, gateway, {}, lambda weights, action: weights, verify=lambda *_: True)
        self.grants: list[ChunkGrant] = []
        self._says_bytes = says_bytes

    def _carry_out(self, command: Command) -> ReplyResult:
        action = command.action
        assert isinstance(action, Train)
        self.trained.append(command.command_id)
        count = -(-self._says_bytes // len(CHUNK))
        manifest = UpdateManifest(
            coding=action.coding,
            base=action.base.digest,
            digest=sha256_hex(b"huge"),
            chunks=ChunkList(length=self._says_bytes, chunk_bytes=131072, digests=[sha256_hex(CHUNK)] * count),
        )
        metrics: dict[str, int | float | list[int] | list[float]] = {"num-examples": 50, "clma-loss": 0.5}
        return TrainResult(round=action.round, cohort=action.cohort, update=manifest, metrics=metrics)

    def _grant(self, grant: ChunkGrant) -> None:
        """Whatever is granted, 100 MB would come."""
        self.grants.append(grant)
        for number in range(64 if grant.indices else 0):
            topic = self._topics.upload_chunk(self.id, grant.digest, number % 3)
            self._session.publish(topic, bytes(400 * 1024), timeout_s=2.0)
