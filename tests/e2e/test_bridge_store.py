"""A bridge whose store is damaged or lost, at its start and in use, and whose disk refuses: real processes."""

import json
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from server_bridge.cli import Exit
from server_bridge.demo.children import Child, find_program
from server_bridge.demo.settings_files import amend
from server_bridge.store.decisions import Decision
from server_bridge.store.recovery import copies_of
from server_bridge.store.store import Store
from tests.broker import Mosquitto
from tests.e2e.bridge_disk import bridge_disk
from tests.e2e.fleet import ToyFleet
from tests.e2e.toy import Drift, toy_bundle
from tests.soak.invariants import violations

DRIFTS = {"gw1": Drift("permuted"), "gw2": Drift("flipped")}
WAIT_S = 120.0


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_bundle(tmp_path_factory.mktemp("bundle")).path


class Scene:
    """A fleet of two gateways that drift; its bridge waits for a third flag, so that flags stay open."""

    def __init__(self, folder: Path, broker: Mosquitto, bundle: Path, *, copy_interval_s: float) -> None:
        self.fleet = ToyFleet(folder, broker, DRIFTS, bundle=bundle)
        amend(
            self.fleet.bridge_dir / "bridge.toml",
            {"bridge": {"store_copy_interval_s": copy_interval_s}, "trigger": {"min_flags": 3}},
        )
        self.file = self.fleet.bridge_dir / "store.db"

    @property
    def bridge(self) -> Child:
        return self.fleet.children.members["bridge"]

    @property
    def log(self) -> str:
        return self.bridge.log.read_text(errors="replace")

    def start_bridge(self) -> None:
        self.fleet.start_bridge()

    def start_gateways(self) -> None:
        for gateway in DRIFTS:
            self.fleet.start_agent(gateway)

    def until(self, what: str, seen: Callable[[], bool]) -> None:
        """Waits without opening the store, which may be damaged."""
        until_s = time.monotonic() + WAIT_S
        while not seen():
            assert time.monotonic() < until_s, f"still waiting for {what}\n{self.bridge.log_tail()}"
            time.sleep(0.1)

    def wait_for_flags(self) -> set[str]:
        """Until a flag of each gateway is open in the store and acknowledged; their ids."""
        self.fleet.wait("flags", lambda store: _flagged(store) == set(DRIFTS), timeout_s=WAIT_S)
        self.until("their acknowledgement", lambda: not self.holding_flags())
        with self.fleet.store() as store:
            return {flag.event.flag_id for flag in store.flags.open()}

    def holding_flags(self) -> set[str]:
        """Gateways that hold a flag without an acknowledgement."""
        found = set()
        for gateway in DRIFTS:
            path = self.fleet.agent_settings(gateway).with_name("data") / "agent.db"
            if path.exists():
                with suppress(sqlite3.OperationalError), closing(sqlite3.connect(path)) as database:  # no table yet
                    bodies = [json.loads(row[0]) for row in database.execute("SELECT body FROM outbox")]
                    found |= {gateway} if any(body["kind"] == "flag" for body in bodies) else set()
        return found

    def ended(self) -> int:
        """Waits for the bridge's end; its exit status."""
        self.until("the bridge's end", lambda: not self.bridge.alive)
        assert self.bridge.process.returncode is not None
        return self.bridge.process.returncode

    def decisions(self) -> list[Decision]:
        with self.fleet.store() as store:
            return [one for one in store.decisions.recent() if one.kind == "store"]


def _flagged(store: Store) -> set[str]:
    return {flag.gateway for flag in store.flags.open()}


def _overwritten_inside(file: Path) -> None:
    """Its beginning stays: only who reads the whole of it notices."""
    with file.open("r+b") as pages:
        pages.seek(4096)
        pages.write(bytes(file.stat().st_size - 4096))


def _deleted(file: Path) -> None:
    file.unlink()


@pytest.mark.long
def test_a_store_damaged_before_a_start_is_restored_and_the_flags_lost_with_it_come_again(
    tmp_path: Path, mosquitto: Mosquitto, bundle: Path
) -> None:
    scene = Scene(tmp_path, mosquitto, bundle, copy_interval_s=900.0)
    try:
        scene.start_bridge()
        scene.until("the first copy", lambda: bool(copies_of(scene.file).all()))
        scene.start_gateways()
        flags = scene.wait_for_flags()
        scene.bridge.process.kill()
        scene.bridge.process.wait(10.0)
        for file in (scene.file, scene.file.with_name("store.db-wal")):
            file.write_bytes(bytes(file.stat().st_size))
        scene.start_bridge()
        scene.until("its recovery", lambda: '"store-restored"' in scene.log)
        assert "store.db is damaged" in scene.log
        assert scene.wait_for_flags() == flags
        told = scene.decisions()
        assert told[0].reason == "restored"
        assert {one.facts["gateway"] for one in told if one.reason == "events-lost"} == set(DRIFTS)
    finally:
        statuses = scene.fleet.stop()
    assert set(statuses.values()) == {0}
    assert scene.file.with_name("store.db.damaged-1").exists()
    assert violations(scene.fleet) == []


@pytest.mark.long
@pytest.mark.parametrize("damage", [_overwritten_inside, _deleted])
def test_a_store_lost_in_use_ends_the_bridge_and_its_next_start_recovers(
    tmp_path: Path, mosquitto: Mosquitto, bundle: Path, damage: Callable[[Path], None]
) -> None:
    scene = Scene(tmp_path, mosquitto, bundle, copy_interval_s=1.0)
    try:
        scene.start_bridge()
        scene.start_gateways()
        flags = scene.wait_for_flags()
        copies = len(list(copies_of(scene.file).all()))
        assert copies > 0
        damage(scene.file)
        assert scene.ended() == Exit.STORAGE
        assert '"store-lost"' in scene.log
        assert f"server-bridge: {scene.file} " in scene.log
        assert "start the bridge" in scene.log
        if damage is _deleted:
            _a_command_makes_no_new_store(scene)
        scene.start_bridge()
        scene.until("its recovery", lambda: '"store-restored"' in scene.log)
        assert scene.wait_for_flags() == flags
        assert scene.decisions()[0].reason == "restored"
    finally:
        scene.fleet.stop()
    assert violations(scene.fleet) == []


def _a_command_makes_no_new_store(scene: Scene) -> None:
    command = [find_program("server-bridge"), "log", "-c", str(scene.fleet.bridge_dir / "bridge.toml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == Exit.STORAGE
    assert "store.db is gone" in done.stderr
    assert not scene.file.exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "named"), [("full", "No space left on device"), ("read-only", "Read-only file system")]
)
def test_a_bridge_whose_disk_refuses_says_so_acknowledges_nothing_and_goes_on_when_it_is_mended(
    tmp_path: Path, mosquitto: Mosquitto, bundle: Path, how: str, named: str
) -> None:
    with bridge_disk(tmp_path / "bridge") as disk:
        scene = Scene(tmp_path, mosquitto, bundle, copy_interval_s=900.0)
        try:
            scene.start_bridge()
            scene.until("its first release", lambda: "blobs-asserted" in scene.log)
            disk.turn(how, scene.bridge)
            scene.start_gateways()
            assert scene.ended() == Exit.STORAGE
            before = len(scene.log)
            if disk.mounted:
                assert f"server-bridge: {scene.file.parent}" in scene.log
                assert named in scene.log
                scene.start_bridge()
                assert scene.ended() == Exit.STORAGE
                assert named in scene.log[before:]
            scene.until("flags", lambda: scene.holding_flags() == set(DRIFTS))
            disk.mend()
            scene.start_bridge()
            scene.wait_for_flags()
        finally:
            statuses = scene.fleet.stop()
        assert set(statuses.values()) == {0}
        assert violations(scene.fleet) == []
