"""Every topic that the bridge listens to, at its real ingest, store and uploads."""

import random
from collections.abc import Callable
from pathlib import Path

from edge_agent.errors import ConfigError
from edge_agent.link.events import Received
from edge_agent.wire.blobs import make_reference, sha256_hex
from edge_agent.wire.codec import encode
from edge_agent.wire.messages import (
    BlobMissingEvent,
    ClockTrust,
    CountsBucket,
    CountsEvent,
    ErrorEvent,
    Event,
    EventBody,
    Presence,
    Reply,
    State,
    TrustedVersions,
)
from server_bridge.config import load_settings
from server_bridge.releases.provision import init_fleet
from server_bridge.releases.record import FileReleaseBook
from server_bridge.releases.retained_map import judge
from tests.fleet.desk import BUNDLE, TOPICS, Desk
from tests.fleet.gateway import manifest, train, update_of
from tests.fleet.test_ingest import flag
from tests.fuzz.target import Target
from tests.training.tiny_bundle import tiny_bundle

UPDATE = update_of(40_000)


class BridgeParts:
    """A desk that is kept small: its clock runs, its outgoing messages are forgotten, its store is trimmed."""

    def __init__(self, directory: Path) -> None:
        self.desk = Desk(directory)
        self.action = train()
        self.order()

    def order(self) -> None:
        """An open command of gw1, and an update of it that is being pulled."""
        commands, uploads = self.desk.fleet._commands, self.desk.fleet._uploads
        commands.issue("c1", "gw1", self.action, 500_000.0)
        if not uploads._uploads:
            uploads.begin("gw1", "c1", manifest(self.action, UPDATE), self.reply())

    def reply(self) -> Reply:
        from edge_agent.wire.messages import TrainResult

        result = TrainResult(
            round=1, cohort="root", update=manifest(self.action, UPDATE), metrics={"num-examples": 10, "clma-loss": 0.5}
        )
        return Reply(gateway="gw1", boot_id="boot", command_id="c1", status="ok", result=result)

    def take(self, topic: str, payload: bytes, retain: bool) -> str:
        self.desk.clock.now_s += 0.1
        dropped = sum(self.desk.ingest._drops.values())
        self.desk.ingest.handle([Received(topic, payload, retain)])
        self.desk.session.sent.clear()
        self.desk.blobs.asked_again.clear()
        return "dropped" if sum(self.desk.ingest._drops.values()) > dropped else "taken"

    def check(self) -> None:
        """Another gateway's flag is still taken and acknowledged."""
        desk = self.desk
        desk.clock.now_s += 61
        number = int(desk.clock.now_s * 10)
        body = flag(number)
        message = Event(gateway="gw2", epoch="e1", sequence=number, low=number, time_s=1.0, body=body)
        desk.ingest.handle([Received(TOPICS.event("gw2"), encode(message), False)])
        assert desk.session.acks("gw2"), "a flag of another gateway is not acknowledged"
        assert any(row.event.flag_id == body.flag_id for row in desk.store.flags.open())
        desk.session.sent.clear()
        desk.fleet.tick()
        desk.ingest.flush_drops()
        desk.store.trim()
        desk.store.gateways.readmit("gw1")
        if len(desk.store.flags.open()) > 500:
            desk.store.flags.ignore([row.event.flag_id for row in desk.store.flags.open()])
        self.order()


def targets(directory: Path) -> list[Target]:
    """A target a row of the topic table, one of topics that are in no row, and the release map and settings."""
    parts = BridgeParts(directory / "desk")
    seeds: dict[str, list[bytes]] = {
        "event": [encode(_event(body)) for body in _bodies()],
        "state": [encode(_state())],
        "presence": [
            encode(Presence(gateway="gw1", online=online, boot_id="boot", connection=3)) for online in (True, False)
        ],
        "reply": [encode(parts.reply()), *_other_replies()],
    }
    found = [
        Target(f"bridge/{row}", known, _row(parts, f"{TOPICS.root}/up/gw1/{row}"), check=parts.check)
        for row, known in seeds.items()
    ]
    digest = sha256_hex(UPDATE)
    chunks = [UPDATE[:16384], UPDATE[16384:32768]]
    topics = [f"{TOPICS.root}/up/gw1/{row}".encode() for row in (*seeds, f"blob/{digest}/0", "a/b/c")]
    found.append(Target("bridge/chunk", chunks, _row(parts, TOPICS.upload_chunk("gw1", digest, 0)), check=parts.check))
    found.append(Target("bridge/topic", topics, lambda data: parts.take(_text(data), b"{}", len(data) % 2 == 0)))
    found.append(_release(directory))
    found.append(_settings(directory))
    return found


def _row(parts: BridgeParts, topic: str) -> Callable[[bytes], str]:
    def feed(payload: bytes) -> str:
        return parts.take(topic, payload, random.Random(payload).random() < 0.1)

    return feed


def _release(directory: Path) -> Target:
    init_fleet(directory / "fleet", tiny_bundle(directory / "bundle").path, "plant")
    book = FileReleaseBook(directory / "fleet" / "releases")
    latest = book.latest()
    assert latest is not None
    root = (directory / "fleet" / "root.json").read_bytes()
    record, payload = latest
    return Target(
        "bridge/release", [payload], lambda data: judge(data, sha256_hex(data), record, book, root).verdict.value
    )


def _settings(directory: Path) -> Target:
    path = directory / "fleet" / "bridge.toml"
    given = (
        path.read_bytes()
        + b'\n[trigger]\nmin_flags = 2\nsettle_s = 1.5\n[round]\nrounds = 3\ntraining_graph = "sgd"\ncoding = "int8"\n'
    )
    fuzzed = directory / "fuzzed-bridge.toml"

    def feed(data: bytes) -> None:
        fuzzed.write_bytes(data)
        load_settings(fuzzed)

    return Target("bridge/settings", [given], feed, (ConfigError,))


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _event(body: EventBody) -> Event:
    return Event(gateway="gw1", epoch="e1", sequence=7, low=3, dropped=[(4, 5)], time_s=1.0, body=body)


def _bodies() -> list[EventBody]:
    reference, _ = make_reference(b"x" * 100)
    counts = CountsEvent(
        bundle=BUNDLE,
        weights="e" * 64,
        weights_version=1,
        cohort="root",
        bucket_s=10.0,
        buckets=[CountsBucket(bucket=n, labelled=9, right=3, loss_sum=0.5) for n in range(3)],
    )
    return [flag(1), ErrorEvent(place="p", problem="x"), BlobMissingEvent(blob=reference), counts]


def _state() -> State:
    return State(
        gateway="gw1",
        boot_id="boot",
        agent_version="0.1.0",
        bundle=BUNDLE,
        weights="e" * 64,
        weights_version=1,
        cohort="root",
        ota_state="idle",
        trusted=TrustedVersions(),
        clock=ClockTrust(trusted=True, floor_s=0.0),
        trainable_samples=12,
        training=False,
    )


def _other_replies() -> list[bytes]:
    base = {"gateway": "gw1", "boot_id": "boot", "command_id": "c1"}
    fields: list[dict[str, object]] = [
        {"status": "stale-boot"},
        {"status": "sequence-low", "highest_sequence": 9},
        {"status": "error", "reason": "busy"},
        {"status": "accepted"},
    ]
    return [encode(Reply.model_validate({**base, **given})) for given in fields]
