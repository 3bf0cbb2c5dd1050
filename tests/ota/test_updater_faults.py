"""An update through power cuts, full disks, lost and damaged files."""

import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from edge_agent.errors import StorageError
from edge_agent.link.database import Database
from edge_agent.link.durable import DISK
from edge_agent.model.bundle import Bundle
from edge_agent.wire.messages.event import ErrorEvent, UpdateLifecycleEvent
from tests.ota.fleet_maps import FleetMaps
from tests.ota.gateway import GatewayParts
from tests.ota.test_updater import release


def test_a_damaged_active_file_falls_back_and_is_fetched_anew(
    gateway: GatewayParts, maps: FleetMaps, bundle: Bundle
) -> None:
    gateway.receive(release(maps, 7, 2))
    gateway.receive(release(maps, 8, 3))
    gateway.close()
    path = gateway.path / "models" / "weights" / f"{gateway.served.weights}.safetensors"
    path.write_bytes(bytes(path.stat().st_size))
    again = GatewayParts(gateway.path, maps, bundle)
    assert again.served.version == 2
    again.settle()
    assert again.served.version == 3
    assert "rolled_back" in again.steps()
    again.close()


def test_three_failed_starts_fall_back_for_good(gateway: GatewayParts, maps: FleetMaps, bundle: Bundle) -> None:
    payload = release(maps, 7, 2)
    gateway.receive(payload)
    gateway.close()
    for _ in range(3):
        crashing = GatewayParts(gateway.path, maps, bundle)
        assert crashing.served.version == 2
        crashing.settle()
        crashing.close()
    fallen = GatewayParts(gateway.path, maps, bundle)
    fallen.receive(payload)
    assert fallen.served == fallen.store.provisioned_slot
    told = [body for body in fallen.events() if isinstance(body, UpdateLifecycleEvent) and body.step == "rolled_back"]
    assert [(body.reason, body.version) for body in told] == [("failed_starts", 2)]
    fallen.receive(release(maps, 9, 3))
    assert fallen.served.version == 3
    fallen.close()


class PowerCut(BaseException):
    """The machine is gone."""


class Fuse:
    """Blows at the k-th durable step: a rename in the file system or a commit of the database."""

    def __init__(self, patch: pytest.MonkeyPatch, k: int, *, error: type[BaseException] | None = None) -> None:
        self.left = k
        self.blown = False
        self._error = error or PowerCut
        rename, run = DISK.rename, Database._run

        def fused_rename(source: Path, target: Path) -> None:
            self._burn()
            rename(source, target)

        def fused_run(database: Database, sql: str, parameters: object = ()) -> object:
            if sql == "COMMIT":
                self._burn()
            return run(database, sql, parameters)  # type: ignore[arg-type]

        patch.setattr(DISK, "rename", fused_rename)
        patch.setattr(Database, "_run", fused_run)

    def _burn(self) -> None:
        self.left -= 1
        if self.left == 0:
            self.blown = True
            raise self._error


def test_a_power_cut_at_any_durable_step_leaves_old_good_or_new_good(
    tmp_path: Path, maps: FleetMaps, bundle: Bundle
) -> None:
    template = tmp_path / "template"
    template.mkdir()
    first = GatewayParts(template, maps, bundle)
    first.receive(release(maps, 6, 2))
    first.close()
    payload = release(maps, 7, 3)
    for k in range(1, 200):
        path = tmp_path / f"cut-{k}"
        shutil.copytree(template, path, symlinks=True)
        with pytest.MonkeyPatch.context() as patch:
            cut = GatewayParts(path, maps, bundle)
            fuse = Fuse(patch, k)
            with suppress(PowerCut):
                cut.receive(payload)
            served = cut.served.version
        cut.close()
        again = GatewayParts(path, maps, bundle)
        assert again.served.version in (2, 3)
        assert again.served.version >= served
        again.receive(payload)
        assert again.served.version == 3
        assert again.updater.state == "committed"
        assert again.store.pointer().last_good.version == 3
        assert again.refusals() == []
        again.close()
        shutil.rmtree(path)
        if not fuse.blown:
            break
    assert k > 10


def test_a_full_disk_at_any_durable_step_is_overcome(tmp_path: Path, maps: FleetMaps, bundle: Bundle) -> None:
    class Full(StorageError):
        def __init__(self) -> None:
            super().__init__("disk full")

    template = tmp_path / "template"
    template.mkdir()
    GatewayParts(template, maps, bundle).close()
    payload = release(maps, 7, 2)
    for k in range(1, 200):
        path = tmp_path / f"full-{k}"
        shutil.copytree(template, path)
        parts = GatewayParts(path, maps, bundle)
        with pytest.MonkeyPatch.context() as patch:
            fuse = Fuse(patch, k, error=Full)
            try:
                parts.receive(payload)
            except StorageError:
                assert parts.served.version in (1, 2)
                parts.settle()
            assert parts.served.version == 2
            assert parts.updater.state == "committed"
            assert parts.store.pointer().last_good.version == 2
        parts.close()
        shutil.rmtree(path)
        if not fuse.blown:
            break
    assert k > 10


@pytest.mark.parametrize("damage", ["absent", "zeroed", "torn"])
def test_a_lost_pointer_is_named_and_the_release_served_again_without_a_fetch(
    tmp_path: Path, maps: FleetMaps, bundle: Bundle, damage: str
) -> None:
    first = GatewayParts(tmp_path, maps, bundle)
    first.receive(release(maps, 7, 2))
    slot, pointer = first.served, tmp_path / "models" / "pointer.json"
    first.close()
    whole = pointer.read_bytes()
    pointer.write_bytes({"zeroed": bytes(len(whole)), "torn": whole[:40], "absent": b""}[damage])
    if damage == "absent":
        pointer.unlink()
    again = GatewayParts(tmp_path, maps, bundle)
    assert again.served == again.store.provisioned_slot
    again.settle()
    assert again.served == slot
    assert again.store.pointer().active == slot
    assert slot.weights not in again.blobs.fetched
    again.settle()
    bodies = [event for event in again.events() if isinstance(event, UpdateLifecycleEvent)]
    named = [(event.reason, event.version) for event in bodies if event.step == "rolled_back"]
    assert named == [("pointer_lost", 2)]
    again.close()


def test_a_lost_trust_cache_is_named_and_restored_by_the_next_map(
    tmp_path: Path, maps: FleetMaps, bundle: Bundle
) -> None:
    old = maps.payload()
    first = GatewayParts(tmp_path, maps, bundle)
    payload = release(maps, 7, 2)
    first.receive(payload)
    slot = first.served
    first.close()
    stored = tmp_path / "trust" / "trusted.map"
    stored.write_bytes(bytes(stored.stat().st_size))
    shutil.rmtree(tmp_path / "trust" / "tuf", ignore_errors=True)
    again = GatewayParts(tmp_path, maps, bundle)
    again.settle()
    assert again.served == slot
    again.receive(old)
    assert [reason for reason, _ in again.refusals()] == ["rollback"]
    again.receive(payload)
    assert (again.served, stored.read_bytes()) == (slot, payload)
    problems = [event.problem for event in again.events() if isinstance(event, ErrorEvent)]
    assert problems == ["the map trusted last is lost or damaged"]
    again.close()
