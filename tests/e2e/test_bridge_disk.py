"""A bridge whose disk is full while its gateways flag."""

import resource
import time
from pathlib import Path

import pytest

from server_bridge.demo.children import Child
from tests.broker import Mosquitto
from tests.e2e.fleet import ToyFleet
from tests.e2e.test_storage_faults import Disk, disk
from tests.soak.invariants import is_closed, violations
from tests.soak.victims import DRIFTS

FULL_S = 12.0
TOO_SMALL_BYTES = 100


@pytest.mark.long
def test_flags_wait_for_a_bridge_whose_disk_is_full(tmp_path: Path, mosquitto: Mosquitto) -> None:
    with disk(tmp_path / "bridge") as under:
        fleet = ToyFleet(tmp_path, mosquitto, DRIFTS)
        try:
            fleet.start()
            fleet.wait("every gateway", lambda store: len(store.gateways.states()) == len(DRIFTS), timeout_s=60)
            bridge = fleet.children.members["bridge"]
            _refuse(under, bridge)
            time.sleep(FULL_S)
            log = bridge.log.read_text()
            assert "disk is full" in log or "No space left" in log or not under.mounted
            _allow(under, bridge)
            if not bridge.alive:  # its service manager would
                fleet.start_bridge()
            since_s = time.time()
            fleet.wait("the loop to close", lambda store: is_closed(fleet, store, since_s), timeout_s=120)
        finally:
            fleet.stop()
        assert violations(fleet) == []


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
