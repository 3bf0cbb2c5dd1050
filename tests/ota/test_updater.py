import threading
from pathlib import Path

import numpy as np
import pytest

from edge_agent.model.bundle import Bundle
from edge_agent.ota.slot import Slot
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.messages.event import BlobMissingEvent
from edge_agent.wire.release import CandidateStatement, Membership
from edge_agent.wire.tensors import encode_weights
from server_bridge.releases.repository import ONLINE_LIFETIME_S, RoleVersions
from tests.ota.fleet_maps import DAY_S, NOW_S, FleetMaps, flip_signed
from tests.ota.gateway import GATEWAY, GatewayParts, maps_of
from tests.training.tiny_bundle import tiny_bundle, tiny_weights


def new_weights(seed: int) -> bytes:
    return encode_weights(tiny_weights(seed))


def release(maps: FleetMaps, seed: int, version: int, cohort: str = "root") -> bytes:
    maps.set_weights(cohort, new_weights(seed), version)
    return maps.advance().payload()


def test_release_1_is_served_already_and_commits_at_once(gateway: GatewayParts, maps: FleetMaps) -> None:
    gateway.receive(maps.payload())
    assert gateway.steps() == ["verifying", "committed"]
    assert gateway.activated == []
    assert gateway.updater.trusted_versions.release == 1


def test_a_new_release_is_activated_step_by_step(gateway: GatewayParts, maps: FleetMaps) -> None:
    payload = release(maps, 7, 2)
    gateway.receive(payload)
    assert gateway.served == Slot(bundle=maps.bundle, weights=sha256_hex(new_weights(7)), cohort="root", version=2)
    assert gateway.activated == [gateway.served]
    assert gateway.steps() == [
        *("verifying", "fetching", "staged", "shadow"),
        *("skipped", "activating", "probation", "skipped", "committed"),
    ]
    pointer = gateway.store.pointer()
    assert (pointer.active, pointer.last_good) == (gateway.served, gateway.served)
    assert pointer.previous_good == gateway.store.provisioned_slot
    assert gateway.updater.trusted_versions.map_digest == sha256_hex(payload)


def test_a_settled_map_that_comes_again_is_no_work(gateway: GatewayParts, maps: FleetMaps) -> None:
    payload = release(maps, 7, 2)
    gateway.receive(payload)
    before = gateway.steps()
    gateway.receive(payload)
    gateway.receive(b"")
    assert gateway.steps() == before


def test_membership_decides_the_cohort(gateway: GatewayParts, maps: FleetMaps) -> None:
    maps.members = {"other": Membership(bundle=maps.bundle, cohort="c1")}
    gateway.receive(release(maps, 7, 1, cohort="c1"))
    assert gateway.served.cohort == "root"
    maps.members = {GATEWAY: Membership(bundle=maps.bundle, cohort="c1")}
    gateway.receive(maps.advance().payload())
    assert (gateway.served.cohort, gateway.served.version) == ("c1", 1)


def test_a_candidate_is_taken_by_eligible_gateways_only(gateway: GatewayParts, maps: FleetMaps) -> None:
    reference = maps.blob(new_weights(8))
    maps.candidates["root"] = CandidateStatement(
        version=2, weights=reference, base_version=1, eligible=["other"], step=0
    )
    gateway.receive(maps.advance().payload())
    assert gateway.served.version == 1
    maps.candidates["root"] = maps.candidates["root"].model_copy(update={"eligible": ["other", GATEWAY]})
    gateway.receive(maps.advance().payload())
    assert gateway.served.version == 2


def test_a_new_bundle_is_fetched_and_served(gateway: GatewayParts, maps: FleetMaps, tmp_path: Path) -> None:
    other = tiny_bundle(tmp_path / "other", tiny_weights(3))
    later = maps_of(other)
    later.keys, later.root = maps.keys, maps.root
    later.blobs |= maps.blobs
    later.versions = RoleVersions(1, 2, 2, 2, 2, 2)
    gateway.blobs.content = later.blobs
    gateway.receive(later.payload())
    assert gateway.served.bundle == other.digest
    assert gateway.store.bundle(other.digest) is not None
    assert (gateway.path / "models" / "bundles" / other.digest / "infer.onnx").is_file()


@pytest.mark.parametrize("fault", ["nan", "shape", "extra", "garbage"])
def test_unfit_weights_are_refused_by_name_and_barred(gateway: GatewayParts, maps: FleetMaps, fault: str) -> None:
    weights = tiny_weights(2)
    if fault == "nan":
        weights["w"][0, 0] = np.nan
    elif fault == "shape":
        weights["w"] = weights["w"].T.copy()
    elif fault == "extra":
        weights["v"] = weights["w"]
    data = b"garbage" if fault == "garbage" else encode_weights(weights)
    maps.set_weights("root", data, 2)
    payload = maps.advance().payload()
    gateway.receive(payload)
    gateway.receive(payload)
    assert gateway.refusals() == [("unfit_weights", sha256_hex(payload))]
    assert gateway.served == gateway.store.provisioned_slot

    again = maps.advance().payload()
    gateway.blobs.fetched.clear()
    gateway.receive(again)
    assert gateway.refusals()[1:] == [("barred", sha256_hex(again))]
    assert sha256_hex(data) not in gateway.blobs.fetched
    gateway.receive(release(maps, 5, 3))
    assert gateway.served.version == 3


def test_a_bundle_for_a_later_agent_is_refused(gateway: GatewayParts, maps: FleetMaps, bundle: Bundle) -> None:
    manifest = bundle.manifest.model_copy(update={"minimum_agent_version": "99.0"})
    from edge_agent.wire.codec import encode

    data = encode(manifest)
    later = maps_of(bundle)
    later.keys, later.root, later.bundle = maps.keys, maps.root, sha256_hex(data)
    later.bundle_files = later.bundle_files | {"manifest.json": data}
    later.versions = RoleVersions(1, 2, 2, 2, 2, 2)
    gateway.blobs.content = later.blobs
    gateway.receive(later.payload())
    assert [reason for reason, _ in gateway.refusals()] == ["unfit_bundle"]
    assert gateway.served == gateway.store.provisioned_slot


def test_bad_maps_are_refused_and_reported_once_each(gateway: GatewayParts, maps: FleetMaps) -> None:
    good = release(maps, 7, 2)
    maps.set_weights("root", new_weights(8), 3)
    maps.advance()
    flipped = flip_signed(maps.payload(), f"{maps.versions.cohorts}.cohorts.json")
    strange = maps.stranger().payload()
    for payload in (good, flipped, strange, good, flipped, strange, b"garbage"):
        gateway.receive(payload)
    assert gateway.refusals() == [
        ("bad_signature", sha256_hex(flipped)),
        ("bad_signature", sha256_hex(strange)),
        ("malformed", sha256_hex(b"garbage")),
    ]
    assert gateway.served.version == 2
    gateway.receive(maps.payload())
    assert gateway.served.version == 3


def test_a_refusal_is_over_once_the_trusted_map_is_seen_again(gateway: GatewayParts, maps: FleetMaps) -> None:
    assert gateway.updater.last_refusal == ""
    good = release(maps, 7, 2)
    gateway.receive(good)
    maps.advance()
    flipped = flip_signed(maps.payload(), "timestamp.json")
    gateway.receive(flipped)
    assert gateway.updater.state == "refused"
    steps = gateway.steps()
    gateway.receive(good)
    assert gateway.updater.state == "committed"
    assert gateway.updater.last_refusal == f"bad_signature, map {sha256_hex(flipped)}"
    assert gateway.steps() == steps
    gateway.receive(flipped)
    gateway.receive(good)
    assert gateway.updater.state == "committed"
    assert gateway.activated == [gateway.served]


def test_a_trusted_map_whose_own_target_was_refused_stays_refused(gateway: GatewayParts, maps: FleetMaps) -> None:
    gateway.receive(release(maps, 7, 5))
    own = release(maps, 8, 4)
    gateway.receive(own)
    gateway.receive(maps.stranger().payload())
    gateway.receive(own)
    assert gateway.updater.state == "refused"
    assert gateway.served.version == 5


def test_maps_that_arrive_together_are_all_examined(gateway: GatewayParts, maps: FleetMaps) -> None:
    good = release(maps, 7, 2)
    maps.advance()
    flipped = flip_signed(maps.payload(), "timestamp.json")
    strange = maps.stranger().payload()
    for payload in (flipped, strange, good):
        gateway.updater.on_release_map(payload)
    gateway.settle()
    assert [digest for _, digest in gateway.refusals()] == [sha256_hex(flipped), sha256_hex(strange)]
    assert gateway.served.version == 2


def test_an_older_version_of_a_cohorts_weights_is_a_rollback(gateway: GatewayParts, maps: FleetMaps) -> None:
    gateway.receive(release(maps, 7, 5))
    payload = release(maps, 8, 4)
    gateway.receive(payload)
    assert gateway.refusals() == [("rollback", sha256_hex(payload))]
    other = release(maps, 9, 5)
    gateway.receive(other)
    assert gateway.refusals()[1:] == [("fork", sha256_hex(other))]
    assert gateway.served.version == 5


def test_the_map_of_another_fleet_is_refused_and_raises_no_floor(gateway: GatewayParts, maps: FleetMaps) -> None:
    versions = maps.versions
    maps.fleet, maps.versions = "elsewhere", RoleVersions(1, 9, 9, 9, 9, 9)
    payload = maps.payload()
    gateway.receive(payload)
    assert gateway.refusals() == [("wrong_fleet", sha256_hex(payload))]
    maps.fleet, maps.versions = "plant", versions
    gateway.receive(release(maps, 7, 2))
    assert gateway.served.version == 2


def test_a_silent_blob_is_reported_until_it_comes(gateway: GatewayParts, maps: FleetMaps) -> None:
    payload = release(maps, 7, 2)
    digest = sha256_hex(new_weights(7))
    held = maps.blobs.pop(digest)

    def appear(_: object) -> None:
        maps.blobs[digest] = held

    gateway.blobs.on_silence = appear
    gateway.receive(payload)
    missing = [body.blob.digest for body in gateway.events() if isinstance(body, BlobMissingEvent)]
    assert missing == [digest]
    assert gateway.served.version == 2


def test_a_newer_map_ends_the_wait_for_a_silent_blob(gateway: GatewayParts, maps: FleetMaps) -> None:
    first = release(maps, 7, 2)
    del maps.blobs[sha256_hex(new_weights(7))]
    second = release(maps, 8, 3)
    gateway.blobs.on_silence = lambda _: gateway.updater.on_release_map(second)
    gateway.receive(first)
    assert gateway.served.version == 3


def test_a_bad_map_does_not_end_the_work_on_a_good_one(gateway: GatewayParts, maps: FleetMaps) -> None:
    first = release(maps, 7, 2)
    digest = sha256_hex(new_weights(7))
    held = maps.blobs.pop(digest)
    older = maps.stranger().payload()

    def interrupt(_: object) -> None:
        gateway.updater.on_release_map(older)
        maps.blobs[digest] = held

    gateway.blobs.on_silence = interrupt
    gateway.receive(first)
    assert gateway.served.version == 2
    assert [found for _, found in gateway.refusals()] == [sha256_hex(older)]


def test_a_wrong_clock_is_reported_once_and_does_not_bar_the_map(gateway: GatewayParts, maps: FleetMaps) -> None:
    payload = release(maps, 7, 2)
    gateway.now_s = NOW_S + ONLINE_LIFETIME_S + DAY_S
    gateway.receive(payload)
    gateway.receive(payload)
    assert gateway.refusals() == [("expired_or_clock_wrong", sha256_hex(payload))]
    gateway.now_s = NOW_S
    gateway.receive(payload)
    assert gateway.served.version == 2


def test_commands_are_verified_by_the_keys_of_the_last_release(gateway: GatewayParts, maps: FleetMaps) -> None:
    key = maps.keys.online.command
    signature = bytes.fromhex(key.sign(b"order").signature)
    name = maps.keys.online.command_id
    assert not gateway.updater.verify_command(name, signature, b"order")
    gateway.receive(maps.payload())
    assert gateway.updater.verify_command(name, signature, b"order")
    assert not gateway.updater.verify_command(name, signature, b"other")
    assert not gateway.updater.verify_command(name, b"", b"order")
    assert not gateway.updater.verify_command("command-else", signature, b"order")


def test_command_keys_survive_a_restart(gateway: GatewayParts, maps: FleetMaps, bundle: Bundle) -> None:
    gateway.receive(maps.payload())
    gateway.close()
    again = GatewayParts(gateway.path, maps, bundle)
    signature = bytes.fromhex(maps.keys.online.command.sign(b"order").signature)
    assert again.updater.verify_command(maps.keys.online.command_id, signature, b"order")
    again.close()


def test_four_weights_are_kept_at_most(gateway: GatewayParts, maps: FleetMaps) -> None:
    for version in range(2, 9):
        gateway.receive(release(maps, version, version))
    assert len(list((gateway.path / "models" / "weights").iterdir())) <= 4
    assert gateway.served.version == 8


def test_the_thread_activates_and_stops(gateway: GatewayParts, maps: FleetMaps) -> None:
    done = threading.Event()
    gateway.updater._activation._on_activated = lambda slot: done.set()
    gateway.updater.start()
    gateway.updater.on_release_map(release(maps, 7, 2))
    assert done.wait(20)
    assert gateway.updater.stop(10.0)
    assert gateway.updater.failure is None


def test_ten_thousand_gateways_fit_the_map(maps: FleetMaps, bundle: Bundle, tmp_path: Path) -> None:
    for number in range(1, 200):
        maps.set_weights(f"c{number}", new_weights(number), 1)
    maps.members = {
        f"gateway-{number:05d}": Membership(bundle=maps.bundle, cohort=f"c{1 + number % 199}")
        for number in range(10_000)
    }
    payload = maps.advance().payload()
    assert len(payload) < 256 * 1024
    parts = GatewayParts(tmp_path, maps, bundle, gateway="gateway-00042")
    parts.receive(payload)
    assert parts.served.cohort == "c43"
    parts.close()
