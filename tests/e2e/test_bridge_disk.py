"""A bridge whose disk is full while its gateways flag."""

import json
import resource
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

import pytest

from server_bridge.demo.children import Child
from tests.broker import Mosquitto
from tests.e2e.fleet import ToyFleet
from tests.e2e.test_storage_faults import Disk, disk
from tests.soak.invariants import DRIFTED, is_closed, violations
from tests.soak.victims import DRIFTS

FLAGS_WAIT_S = 180.0
TOO_SMALL_BYTES = 100


@pytest.mark.long
def test_flags_wait_for_a_bridge_whose_disk_is_full(tmp_path: Path, mosquitto: Mosquitto) -> None:
    with disk(tmp_path / "bridge") as under:
        fleet = ToyFleet(tmp_path, mosquitto, DRIFTS)
        try:
            fleet.start_bridge()
            bridge = fleet.children.members["bridge"]
            fleet.wait("its first release", lambda store: "blobs-asserted" in bridge.log.read_text(), timeout_s=120)
            _refuse(under, bridge)
            for gateway in DRIFTS:
                fleet.start_agent(gateway)
            until_s = time.monotonic() + FLAGS_WAIT_S
            while not (_waiting(fleet) >= set(DRIFTED) and (_ended_by_it(bridge) or not under.mounted)):
                assert time.monotonic() < until_s, (_waiting(fleet), bridge.log_tail())
                time.sleep(0.2)
            _allow(under, bridge)
            if not bridge.alive:  # its service manager would
                fleet.start_bridge()
            since_s = time.time()
            fleet.wait("the loop to close", lambda store: is_closed(fleet, store, since_s), timeout_s=200)
        finally:
            fleet.stop()
        assert violations(fleet) == []


def _waiting(fleet: ToyFleet) -> set[str]:
    """Gateways that hold a flag and no acknowledgement of it."""
    found = set()
    for gateway in fleet.drifts:
        path = fleet.agent_settings(gateway).with_name("data") / "agent.db"
        if path.exists():
            with suppress(sqlite3.OperationalError), closing(sqlite3.connect(path)) as database:  # no table yet
                kinds = [json.loads(row[0])["kind"] for row in database.execute("SELECT body FROM outbox")]
                found |= {gateway} if "flag" in kinds else set()
    return found


def _ended_by_it(bridge: Child) -> bool:
    """It names what it ends for before it has ended."""
    log = bridge.log.read_text()
    return not bridge.alive and ("disk is full" in log or "No space left" in log)


def _refuse(under: Disk, bridge: Child) -> None:
    """A full file system; without the right to mount, a limit on the bridge's files (its log among them)."""
    if under.mounted:
        under.refuse("full")
    else:
        resource.prlimit(bridge.process.pid, resource.RLIMIT_FSIZE, (TOO_SMALL_BYTES, resource.RLIM_INFINITY))


def _allow(under: Disk, bridge: Child) -> None:
    if under.mounted:
        under.allow()
    elif bridge.alive:
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(bridge.process.pid, resource.RLIMIT_FSIZE, unlimited)
