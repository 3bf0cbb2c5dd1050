from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_agent.errors import RejectedUpdate
from edge_agent.link.database import open_database
from edge_agent.ota.floors import Floors
from edge_agent.ota.trust import TrustedReleases
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.provision import ProvisionedFloors
from edge_agent.wire.release import decode_release_map
from server_bridge.demo.hostile import flipped_map, is_signed_by, next_map, stranger_map
from tests.ota.fleet_maps import NOW_S, FleetMaps

LATER_S = NOW_S + 60


@pytest.fixture(scope="module")
def maps() -> FleetMaps:
    return FleetMaps()


@pytest.fixture
def trust(tmp_path: Path, maps: FleetMaps) -> Iterator[TrustedReleases]:
    """A provisioned gateway's trust, after it has accepted the current map."""
    database = open_database(tmp_path / "agent.db")
    floors = Floors(database)
    current = maps.payload()
    floors.provision(
        ProvisionedFloors(
            root=1,
            targets=1,
            bundles=1,
            cohorts=1,
            snapshot=1,
            timestamp=1,
            created_s=NOW_S,
            map_digest=sha256_hex(current),
        ),
        maps.root,
    )
    trusted = TrustedReleases(tmp_path / "trust", maps.root, floors, lambda: LATER_S)
    trusted.accept(trusted.examine(current))
    yield trusted
    database.close()


def test_the_next_map_would_be_accepted_so_only_the_flip_can_be_why_it_is_not(
    trust: TrustedReleases, maps: FleetMaps
) -> None:
    payload, _ = next_map(maps.payload(), maps.keys.online, LATER_S)
    trust.accept(trust.examine(payload))


def test_a_flipped_byte_in_a_signed_digest_is_refused(trust: TrustedReleases, maps: FleetMaps) -> None:
    payload, version = flipped_map(maps.payload(), maps.keys.online, LATER_S)
    assert version == 2
    with pytest.raises(RejectedUpdate) as refusal:
        trust.examine(payload)
    assert refusal.value.reason == "bad_signature"


def test_exactly_one_byte_is_flipped(maps: FleetMaps) -> None:
    honest = decode_release_map(next_map(maps.payload(), maps.keys.online, LATER_S)[0])
    flipped = decode_release_map(flipped_map(maps.payload(), maps.keys.online, LATER_S)[0])
    differing = [name for name in honest if honest[name] != flipped[name]]
    assert differing == ["2.cohorts.json"]
    pairs = zip(honest["2.cohorts.json"], flipped["2.cohorts.json"], strict=True)
    assert sum(first != second for first, second in pairs) == 1


def test_a_strangers_signature_is_refused(trust: TrustedReleases, maps: FleetMaps) -> None:
    payload, version = stranger_map(maps.payload(), LATER_S)
    assert version == 2
    with pytest.raises(RejectedUpdate) as refusal:
        trust.examine(payload)
    assert refusal.value.reason == "bad_signature"


def test_the_fleets_own_map_is_still_accepted_after_both(trust: TrustedReleases, maps: FleetMaps) -> None:
    current = maps.payload()
    for payload, _ in (flipped_map(current, maps.keys.online, LATER_S), stranger_map(current, LATER_S)):
        with pytest.raises(RejectedUpdate):
            trust.examine(payload)
    trust.accept(trust.examine(current))


def test_own_maps_are_told_from_hostile_ones(maps: FleetMaps) -> None:
    current = maps.payload()
    assert is_signed_by(current, current)
    assert is_signed_by(next_map(current, maps.keys.online, LATER_S)[0], current)
    assert not is_signed_by(flipped_map(current, maps.keys.online, LATER_S)[0], current)
    assert not is_signed_by(stranger_map(current, LATER_S)[0], current)
    assert not is_signed_by(b"", current)
