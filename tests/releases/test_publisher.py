import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from edge_agent.errors import RejectedUpdate, TransientError
from edge_agent.link.blob_store import BlobStore
from edge_agent.link.database import open_database
from edge_agent.link.download import Downloader
from edge_agent.link.outbox import Outbox
from edge_agent.link.settings import BrokerSettings
from edge_agent.model.bundle import Bundle
from edge_agent.ota.floors import Floors
from edge_agent.ota.startup import startup
from edge_agent.ota.trust import TrustedReleases
from edge_agent.ota.updater import Parts, Updater
from edge_agent.ota.weights_store import WeightsStore
from edge_agent.serving.server import ModelServer
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.codec import encode
from edge_agent.wire.messages.command import Command, Identify
from edge_agent.wire.messages.state import ClockTrust, State, TrustedVersions
from edge_agent.wire.release import decode_release_map, encode_release_map
from edge_agent.wire.tensors import encode_weights
from server_bridge.releases import claims, publisher
from server_bridge.releases.keys import FleetKeys, OnlineKeys
from server_bridge.releases.provision import floors_of, init_fleet
from server_bridge.releases.record import FileReleaseBook
from server_bridge.releases.repository import build_online, cohort_references, metadata_files, read_versions
from tests.broker import Mosquitto
from tests.releases.bench import TOPICS, WAIT_S, Bridge, Listener, eventually
from tests.training.tiny_bundle import tiny_bundle, tiny_weights


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return tiny_bundle(tmp_path_factory.mktemp("made") / "bundle")


@pytest.fixture
def bridge(tmp_path: Path, mosquitto: Mosquitto, bundle: Bundle, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bridge]:
    monkeypatch.setattr(publisher, "RETAINED_WAIT_S", 0.3)
    monkeypatch.setattr(claims, "GATHER_S", 0.5)
    init_fleet(tmp_path / "fleet", bundle.path, "plant")
    bridge = Bridge(tmp_path / "fleet", mosquitto.port)
    bridge.open()
    yield bridge
    bridge.close()


@pytest.fixture
def listener(mosquitto: Mosquitto) -> Iterator[Listener]:
    listener = Listener(mosquitto.port)
    yield listener
    listener.close()


def new_weights(seed: int) -> bytes:
    return encode_weights(tiny_weights(seed))


def next_map(bridge: Bridge, keys: OnlineKeys) -> bytes:
    """What would come after the release in force, signed by ``keys``."""
    latest = FileReleaseBook(bridge.home / "releases").latest()
    assert latest is not None
    files = decode_release_map(latest[1])
    versions = read_versions(files, (bridge.home / "root.json").read_bytes())
    names = metadata_files(versions)
    online = build_online(keys, versions.next_online(), cohort_references(files[names["cohorts"]]), time.time())
    kept = {name: data for name, data in files.items() if name.split(".")[-2] in ("root", "targets", "bundles")}
    return encode_release_map(kept | online)


def test_release_1_is_published_when_the_bridge_runs(bridge: Bridge, listener: Listener, tmp_path: Path) -> None:
    assert bridge.publisher.wait_asserted(WAIT_S)
    record = bridge.publisher.latest
    eventually(lambda: listener.last_is(record.map_digest))
    store = BlobStore(tmp_path / "fetched")
    downloader = Downloader(BrokerSettings("127.0.0.1", bridge.port), "gw.down", TOPICS, store)
    for reference in record.blobs:
        assert sha256_hex(downloader.fetch(reference, timeout_s=WAIT_S).read_bytes()) == reference.digest


def test_a_release_rises_and_is_kept(bridge: Bridge, listener: Listener, bundle: Bundle) -> None:
    assert bridge.publisher.wait_asserted(WAIT_S)
    number = bridge.publisher.release(bundle.digest, {"gw1": "c1"}, {"c1": new_weights(5)}, "test")
    assert number == 2
    assert bridge.publisher.current(bundle.digest)["c1"] == sha256_hex(new_weights(5))
    assert bridge.publisher.members(bundle.digest) == {"gw1": "c1"}
    eventually(lambda: listener.last_is(bridge.publisher.latest.map_digest))
    bridge.close()
    again = bridge.open()
    assert again.latest.number == 2
    assert again.wait_asserted(WAIT_S)
    assert again.release(bundle.digest, {"gw1": "c1"}, {"c1": new_weights(6)}, "test") == 3
    cohort = again.latest.cohort(bundle.digest, "c1")
    assert cohort is not None
    assert cohort.current.version == 2
    assert bridge.alarms == []


def test_unfit_weights_are_not_released(bridge: Bridge, bundle: Bundle) -> None:
    weights = tiny_weights(1)
    weights["w"][0, 0] = float("nan")
    with pytest.raises(RejectedUpdate):
        bridge.publisher.release(bundle.digest, {}, {"root": encode_weights(weights)}, "test")
    assert bridge.publisher.latest.number == 1
    assert bridge.publisher.wait_asserted(WAIT_S)
    assert bridge.publisher.release(bundle.digest, {}, {"root": new_weights(2)}, "test") == 2


def test_foreign_maps_are_counted_and_replaced(bridge: Bridge, listener: Listener) -> None:
    assert bridge.publisher.wait_asserted(WAIT_S)
    own = bridge.publisher.latest.map_digest
    stranger = next_map(bridge, FleetKeys.generate().online)
    for payload in (stranger, b"garbage"):
        eventually(lambda: listener.last_is(own))
        listener.publish(payload)
        eventually(lambda payload=payload: payload in listener.heard())  # type: ignore[misc]
        eventually(lambda: listener.last_is(own))
    assert bridge.publisher.foreign_maps == 2
    assert [kind for kind, _ in bridge.alarms] == ["foreign-map", "foreign-map"]
    assert bridge.publisher.latest.number == 1
    listener.publish(b"")
    eventually(lambda: b"" in listener.heard())
    eventually(lambda: listener.last_is(own))


def test_a_signed_map_ahead_of_ours_is_an_alarm_and_passed(bridge: Bridge, listener: Listener) -> None:
    assert bridge.publisher.wait_asserted(WAIT_S)
    listener.publish(next_map(bridge, OnlineKeys.load(bridge.home / "keys")))
    eventually(lambda: bridge.publisher.latest.number == 2)
    assert bridge.publisher.latest.versions.timestamp == 3
    eventually(lambda: listener.last_is(bridge.publisher.latest.map_digest))
    assert [kind for kind, _ in bridge.alarms] == ["ahead"]


def test_a_broker_that_lost_everything_gets_it_back(
    bridge: Bridge, mosquitto: Mosquitto, bundle: Bundle, tmp_path: Path
) -> None:
    assert bridge.publisher.wait_asserted(WAIT_S)
    mosquitto.kill()
    eventually(lambda: not bridge.publisher.asserted or not bridge.publisher._line.connected)
    with pytest.raises(TransientError):
        bridge.publisher.release(bundle.digest, {}, {"root": new_weights(3)}, "test")
    assert bridge.publisher.latest.number == 1
    mosquitto.start()
    eventually(lambda: bridge.publisher._line.connected)
    assert bridge.publisher.wait_asserted(WAIT_S)
    downloader = Downloader(
        BrokerSettings("127.0.0.1", bridge.port), "gw.down", TOPICS, BlobStore(tmp_path / "fetched")
    )
    for reference in bridge.publisher.latest.blobs:
        downloader.fetch(reference, timeout_s=WAIT_S)


@pytest.mark.parametrize("damage", ["torn", "zeroed", "gone"])
def test_a_blob_that_the_disk_damaged_is_had_again_from_the_broker(bridge: Bridge, damage: str) -> None:
    assert bridge.publisher.wait_asserted(WAIT_S)
    (weights,) = {one.current.weights.digest for one in bridge.publisher.latest.cohorts}
    file = bridge.home / "blobs" / weights[:2] / weights
    whole = file.read_bytes()
    bridge.close()
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(whole[: len(whole) // 2] if damage == "torn" else bytes(len(whole)))
    bridge.open()
    assert bridge.publisher.wait_asserted(WAIT_S)
    assert file.read_bytes() == whole


def test_a_blob_that_nobody_holds_any_more_is_named(bridge: Bridge, mosquitto: Mosquitto) -> None:
    assert bridge.publisher.wait_asserted(WAIT_S)
    (weights,) = {one.current.weights.digest for one in bridge.publisher.latest.cohorts}
    bridge.close()
    (bridge.home / "blobs" / weights[:2] / weights).write_bytes(b"torn")
    mosquitto.kill()
    mosquitto.start()
    with structlog.testing.capture_logs() as logs:
        bridge.open()
        eventually(lambda: any(weights in str(entry.get("problem")) for entry in logs), timeout_s=WAIT_S)
    assert not bridge.publisher.asserted


def test_the_base_of_a_round_is_back_without_a_gateways_asking(
    bridge: Bridge, mosquitto: Mosquitto, tmp_path: Path
) -> None:
    assert bridge.publisher.wait_asserted(WAIT_S)
    lost = bridge.publisher.publish(b"a base that the disk lost")
    base = bridge.publisher.publish(b"base weights" * 10_000)
    (tmp_path / "fleet" / "blobs" / lost.digest[:2] / lost.digest).unlink()
    mosquitto.kill()
    mosquitto.start()
    store = BlobStore(tmp_path / "fetched")
    downloader = Downloader(BrokerSettings("127.0.0.1", bridge.port), "gw.down", TOPICS, store, silence_s=60.0)
    began_s = time.monotonic()
    downloader.fetch(base, timeout_s=WAIT_S)
    assert time.monotonic() - began_s < 30.0
    assert bridge.publisher.wait_asserted(WAIT_S)


def test_a_missing_blob_is_published_again(bridge: Bridge, listener: Listener, tmp_path: Path) -> None:
    assert bridge.publisher.wait_asserted(WAIT_S)
    reference = bridge.publisher.latest.blobs[0]
    token = listener.session.publish(TOPICS.chunk(reference.digest, 0), b"", retain=True, timeout_s=WAIT_S)
    eventually(lambda: listener.settled(token))
    bridge.publisher.republish(reference)
    downloader = Downloader(
        BrokerSettings("127.0.0.1", bridge.port), "gw.down", TOPICS, BlobStore(tmp_path / "fetched"), silence_s=3.0
    )

    def fetched() -> bool:
        try:
            return downloader.fetch(reference, timeout_s=WAIT_S).is_file()
        except TransientError:
            return False

    eventually(fetched)


def test_unused_blobs_are_cleared_after_a_day(bridge: Bridge) -> None:
    assert bridge.publisher.wait_asserted(WAIT_S)
    reference = bridge.publisher.publish(b"round weights")
    blobs = bridge.publisher._blobs
    assert blobs.retire_unused() == 0
    blobs._clock = lambda: time.time() + 25 * 3600.0
    assert blobs.retire_unused() == 1
    assert blobs.find(reference.digest) is None
    absent = blobs._readback.absent({reference.digest: [reference.digest]})
    assert absent == {reference.digest}
    assert all(blobs.find(one.digest) for one in bridge.publisher.latest.blobs)


def test_retained_blobs_keep_to_the_budget(bridge: Bridge) -> None:
    assert bridge.publisher.wait_asserted(WAIT_S)
    blobs = bridge.publisher._blobs
    used = blobs._ledger.total_bytes
    blobs._budget_bytes = used + 1500
    first = bridge.publisher.publish(b"a" * 1000)
    second = bridge.publisher.publish(b"b" * 1000)
    assert blobs.find(first.digest) is None
    assert blobs.find(second.digest) == second
    with pytest.raises(TransientError, match="budget"):
        bridge.publisher.publish(b"c" * 2000)


def test_a_gateway_ahead_of_the_book_is_an_alarm_and_passed(bridge: Bridge, bundle: Bundle) -> None:
    assert bridge.publisher.wait_asserted(WAIT_S)
    state = State(
        gateway="gw1",
        boot_id="b",
        agent_version="0.1.0",
        bundle=bundle.digest,
        weights="f" * 64,
        weights_version=4,
        cohort="root",
        ota_state="committed",
        trusted=TrustedVersions(root=1, timestamp=9, snapshot=9, targets=1, release=4, map_digest="e" * 64),
        clock=ClockTrust(trusted=True, floor_s=0.0),
        trainable_samples=0,
        training=False,
    )
    bridge.publisher.observe(state)
    assert [kind for kind, _ in bridge.alarms] == ["gateway-ahead"]
    eventually(lambda: bridge.publisher.latest.number == 2)
    assert bridge.publisher.latest.versions.timestamp == 10
    bridge.publisher.observe(state)
    target = bridge.publisher.latest.cohort(bundle.digest, "root")
    assert target is not None
    assert target.current.version in (1, 5)


def test_a_bridge_restored_from_a_backup_goes_on_above(
    bridge: Bridge, listener: Listener, bundle: Bundle, tmp_path: Path
) -> None:
    assert bridge.publisher.wait_asserted(WAIT_S)
    shutil.copytree(bridge.home, tmp_path / "backup", ignore=shutil.ignore_patterns("*.tmp"))
    bridge.publisher.release(bundle.digest, {}, {"root": new_weights(3)}, "test")
    bridge.close()
    shutil.rmtree(bridge.home)
    shutil.copytree(tmp_path / "backup", bridge.home)
    restored = bridge.open()
    eventually(lambda: restored.latest.versions.timestamp == 3)
    eventually(lambda: listener.last_is(restored.latest.map_digest))
    assert [kind for kind, _ in bridge.alarms] == ["ahead"]


def test_a_gateway_follows_releases_over_a_real_broker(bridge: Bridge, bundle: Bundle, tmp_path: Path) -> None:
    root = (bridge.home / "root.json").read_bytes()
    database = open_database(tmp_path / "agent.db")
    outbox = Outbox(database, "gw1", max_bytes=10**7, max_age_s=10**9)
    floors = Floors(database)
    floors.provision(floors_of(bridge.publisher.latest), root)
    store = WeightsStore(tmp_path / "models", bundle)
    started = startup(store)
    slot = started.slot
    server = ModelServer(bundle, started.loaded.weights, slot.weights, slot.version, slot.cohort)
    blobs = BlobStore(tmp_path / "gw-blobs")
    downloader = Downloader(BrokerSettings("127.0.0.1", bridge.port), "gw1.down", TOPICS, blobs)
    updater = Updater(
        "gw1",
        "plant",
        Parts(
            database,
            outbox,
            floors,
            TrustedReleases(tmp_path / "trust", root, floors, time.time),
            store,
            server,
            downloader,
        ),
        forget=blobs.remove,
        on_activated=lambda slot: None,
        started=started,
    )
    gateway = Listener(bridge.port)
    updater.start()
    try:
        fed = 0

        def feed() -> None:
            nonlocal fed
            maps = gateway.heard()
            for payload in maps[fed:]:
                updater.on_release_map(payload)
            fed = len(maps)

        def serves(cohort: str, version: int) -> bool:
            feed()
            return (server.active.cohort, server.active.version) == (cohort, version)

        assert bridge.publisher.wait_asserted(WAIT_S)
        bridge.publisher.release(bundle.digest, {}, {"root": new_weights(3)}, "test")
        eventually(lambda: serves("root", 2))
        bridge.publisher.release(bundle.digest, {"gw1": "c1"}, {"c1": new_weights(4)}, "test")
        eventually(lambda: serves("c1", 1))
        order = encode(
            Command(
                fleet="plant", gateway="gw1", boot_id="b", command_id="c", sequence=1, duration_s=1.0, action=Identify()
            )
        )
        key_id, signature = bridge.signer.sign_command(order)
        assert updater.verify_command(key_id, signature, order)
        eventually(lambda: updater.state == "committed" and blobs.total_bytes == 0)
    finally:
        updater.stop(5.0)
        gateway.close()
        database.close()
    assert updater.failure is None
