import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import tuf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_agent.errors import RejectedUpdate
from edge_agent.link.database import Database, open_database
from edge_agent.ota.floors import Floors
from edge_agent.ota.trust import TrustedReleases, VerifiedMap
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.provision import ProvisionedFloors
from edge_agent.wire.release import FLEET_TARGET, MEMBERSHIP_TARGET, bundle_target, cohort_target, decode_release_map
from server_bridge.releases.repository import ONLINE_LIFETIME_S
from tests.ota.fleet_maps import BUNDLE, DAY_S, NOW_S, FleetMaps, flip_signed, raw_map

YEAR_S = 365 * DAY_S
ONLINE_AND_OFFLINE = ("targets", "bundles", "cohorts", "snapshot", "timestamp")


@dataclass
class Gate:
    """A gateway's trust in a directory, with a clock to set."""

    path: Path
    maps: FleetMaps
    now_s: float = NOW_S

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        self.database: Database = open_database(self.path / "agent.db")
        self.floors = Floors(self.database)
        self.trust = TrustedReleases(self.path / "trust", self.maps.root, self.floors, lambda: self.now_s)

    def reopen(self) -> None:
        self.database.close()
        self.open()

    def provision(self) -> None:
        payload = self.maps.payload()
        floors = ProvisionedFloors(
            root=1,
            targets=1,
            bundles=1,
            cohorts=1,
            snapshot=1,
            timestamp=1,
            created_s=NOW_S,
            map_digest=sha256_hex(payload),
        )
        self.floors.provision(floors, self.maps.root)

    def accept(self, payload: bytes) -> VerifiedMap:
        verified = self.trust.examine(payload)
        self.trust.accept(verified)
        return verified

    def refusal(self, payload: bytes) -> str:
        with pytest.raises(RejectedUpdate) as caught:
            self.trust.examine(payload)
        return caught.value.reason


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    gate = Gate(tmp_path, FleetMaps())
    gate.provision()
    yield gate
    gate.database.close()


def test_a_signed_map_is_trusted_and_names_its_targets(gate: Gate) -> None:
    verified = gate.accept(gate.maps.payload())
    for name in (FLEET_TARGET, MEMBERSHIP_TARGET, bundle_target(BUNDLE), cohort_target(BUNDLE, "root")):
        reference = verified.target(name)
        assert reference is not None
        assert reference.digest in gate.maps.blobs
    assert verified.target("cohorts/else.json") is None
    assert verified.created_s == NOW_S


def test_an_equal_map_is_trusted_again(gate: Gate) -> None:
    payload = gate.maps.advance().payload()
    gate.accept(payload)
    assert gate.accept(payload).digest == sha256_hex(payload)


@pytest.mark.parametrize("caches", ["intact", "lost", "zeroed"])
def test_an_older_map_is_refused_whatever_became_of_the_caches(gate: Gate, caches: str) -> None:
    old = gate.maps.advance().payload()
    gate.accept(old)
    gate.accept(gate.maps.advance().payload())
    if caches == "lost":
        shutil.rmtree(gate.path / "trust")
    if caches == "zeroed":
        for path in (gate.path / "trust").rglob("*"):
            if path.is_file() and not path.is_symlink():
                path.write_bytes(bytes(path.stat().st_size))
    gate.reopen()
    assert gate.refusal(old) == "rollback"
    gate.accept(gate.maps.advance().payload())


def test_a_lower_version_of_any_single_role_is_a_rollback(gate: Gate) -> None:
    gate.maps.versions = type(gate.maps.versions)(1, 5, 5, 5, 5, 5)
    gate.accept(gate.maps.payload())
    for role in ONLINE_AND_OFFLINE:
        values = dict.fromkeys(ONLINE_AND_OFFLINE, 6) | {role: 4}
        gate.maps.versions = type(gate.maps.versions)(1, **values)
        assert gate.refusal(gate.maps.payload()) == "rollback"


def test_another_map_of_a_trusted_version_is_a_fork(gate: Gate) -> None:
    gate.accept(gate.maps.advance().payload())
    gate.maps.set_weights("root", b"other", 2)
    assert gate.refusal(gate.maps.payload()) == "fork"


def test_the_same_files_in_another_map_are_a_fork(gate: Gate) -> None:
    payload = gate.maps.advance().payload()
    gate.accept(payload)
    assert gate.refusal(raw_map(decode_release_map(payload))) == "fork"


@pytest.mark.parametrize("role", ["root", "targets", "bundles", "cohorts", "snapshot", "timestamp"])
def test_a_flipped_byte_in_a_role_of_the_next_version_is_refused(gate: Gate, role: str) -> None:
    gate.maps.versions = type(gate.maps.versions)(1, 2, 2, 2, 2, 2)
    payload = gate.maps.payload()
    name = next(name for name in decode_release_map(payload) if name.endswith(f"{role}.json"))
    reason = gate.refusal(flip_signed(payload, name))
    assert reason == ("fork" if role == "root" else "bad_signature")
    gate.accept(payload)


def test_a_map_refused_half_way_does_not_bar_the_true_one(gate: Gate) -> None:
    gate.accept(gate.maps.payload())
    gate.maps.advance()
    hostile = FleetMaps(keys=gate.maps.keys, now_s=NOW_S)
    hostile.versions = type(hostile.versions)(1, 1, 1, 9, 9, 9)
    assert gate.refusal(flip_signed(hostile.payload(), "9.cohorts.json")) in ("bad_signature", "fork")
    gate.accept(gate.maps.payload())


def test_a_stranger_is_refused(gate: Gate) -> None:
    assert gate.refusal(gate.maps.advance().stranger().payload()) == "bad_signature"


@pytest.mark.parametrize(
    ("clock_s", "reason"),
    [
        (NOW_S + ONLINE_LIFETIME_S + DAY_S, "expired_or_clock_wrong"),
        (4_070_908_800.0, "expired_or_clock_wrong"),
        (0.0, None),
        (NOW_S - 400 * DAY_S, None),
    ],
    ids=["ahead", "2099", "1970", "behind"],
)
def test_the_clock_bars_only_when_it_is_past_expiry(gate: Gate, clock_s: float, reason: str | None) -> None:
    payload = gate.maps.advance().payload()
    gate.now_s = clock_s
    if reason is None:
        gate.accept(payload)
    else:
        assert gate.refusal(payload) == reason
    gate.now_s = NOW_S
    gate.accept(payload)
    assert gate.floors.time_floor_s == NOW_S


def test_an_expired_map_is_refused_though_the_clock_says_1970(gate: Gate) -> None:
    gate.accept(gate.maps.advance().payload(created_s=NOW_S + 2 * ONLINE_LIFETIME_S))
    gate.now_s = 0.0
    assert gate.refusal(gate.maps.advance().payload(created_s=NOW_S)) == "expired_or_clock_wrong"
    assert not gate.trust.clock_trust.trusted


@pytest.mark.parametrize(
    ("past_floor_s", "trusted"),
    [(-1.0, False), (0.0, True), (9 * YEAR_S, True), (10 * YEAR_S, False), (73 * YEAR_S, False)],
)
def test_a_clock_is_trusted_from_the_floor_on_and_less_than_ten_years_past_it(
    gate: Gate, past_floor_s: float, trusted: bool
) -> None:
    gate.accept(gate.maps.advance().payload())
    gate.now_s = gate.floors.time_floor_s + past_floor_s
    assert gate.trust.clock_trust.trusted is trusted


def test_without_a_floor_no_clock_is_trusted(gate: Gate) -> None:
    gate.database.close()
    for path in gate.path.glob("agent.db*"):
        path.unlink()
    gate.open()
    assert not gate.trust.clock_trust.trusted


def test_lost_floors_are_rebuilt_from_the_stored_map(gate: Gate) -> None:
    old = gate.maps.payload()
    gate.accept(gate.maps.advance().payload())
    gate.database.close()
    for path in gate.path.glob("agent.db*"):
        path.unlink()
    gate.open()
    assert gate.trust.recover_floors()
    assert gate.refusal(old) == "rollback"


def test_with_floors_and_caches_lost_nothing_is_trusted(gate: Gate) -> None:
    gate.database.close()
    for path in gate.path.glob("agent.db*"):
        path.unlink()
    shutil.rmtree(gate.path / "trust")
    gate.open()
    assert not gate.trust.recover_floors()
    assert gate.refusal(gate.maps.payload()) == "floors_lost"


def test_a_root_rotation_is_followed(gate: Gate) -> None:
    from server_bridge.releases.keys import FleetKeys, OnlineKeys
    from server_bridge.releases.repository import build_root

    gate.accept(gate.maps.payload())
    fresh = FleetKeys.generate()
    online = OnlineKeys(
        fresh.online.snapshot, fresh.online.timestamp, gate.maps.keys.online.cohorts, gate.maps.keys.online.command
    )
    gate.maps.keys = FleetKeys(gate.maps.keys.root, 1, gate.maps.keys.targets, gate.maps.keys.bundles, online)
    second = build_root(gate.maps.keys, 2, NOW_S)
    files = gate.maps.advance().files() | second
    gate.accept(raw_map(files))
    assert gate.floors.trusted_versions(BUNDLE, "root").root == 2
    assert gate.refusal(gate.maps.advance().payload()) == "rollback"


def test_floors_keep_a_cohorts_release(gate: Gate) -> None:
    gate.floors.raise_release(BUNDLE, "root", 5, "a" * 64)
    gate.floors.check_release(BUNDLE, "root", 5, "a" * 64)
    gate.floors.check_release(BUNDLE, "c1", 1, "b" * 64)
    for version, weights, reason in ((4, "a" * 64, "rollback"), (5, "b" * 64, "fork")):
        with pytest.raises(RejectedUpdate) as caught:
            gate.floors.check_release(BUNDLE, "root", version, weights)
        assert caught.value.reason == reason


def test_the_adapter_is_written_for_this_tuf() -> None:
    assert re.match(r"7\.", tuf.__version__), "check that Updater._trusted_set.reference_time is still there"


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_bytes_of_a_map_raise_only_rejected_update(gate: Gate, data: st.DataObject) -> None:
    gate.maps.versions = type(gate.maps.versions)(1, 9, 9, 9, 9, 9)
    payload = bytearray(gate.maps.payload())
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    with suppress(RejectedUpdate):
        gate.trust.examine(bytes(payload))


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_changed_metadata_files_raise_only_rejected_update(gate: Gate, data: st.DataObject) -> None:
    gate.maps.versions = type(gate.maps.versions)(1, 9, 9, 9, 9, 9)
    files = gate.maps.files()
    name = data.draw(st.sampled_from(sorted(files)))
    content = bytearray(files[name])
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.sampled_from(b'0129"{}[],:xeE-.\\'))
    files[name] = bytes(content)
    with suppress(RejectedUpdate):
        gate.trust.examine(raw_map(files))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_only_rejected_update(payload: bytes) -> None:
    from edge_agent.ota.claims import read_claims
    from edge_agent.wire.errors import WireError

    with pytest.raises(WireError):
        read_claims(decode_release_map(payload))
