"""The service units: what systemd's own tools say of them, and the programs under their filters."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from edge_agent.cli.exits import Exit
from server_bridge.cli import Exit as BridgeExit
from server_bridge.store.adaptations import DONE
from server_bridge.store.store import Store
from tests.broker import Mosquitto
from tests.deploy.confined import unit_settings
from tests.e2e.fleet import ToyFleet
from tests.e2e.toy import Drift

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "deploy" / "systemd"
NAMES = ("edge-agent", "server-bridge")
EXPOSURE_MOST = 1.5
DRIFTS = {"gw1": Drift("permuted"), "gw2": Drift("permuted")}


@pytest.mark.parametrize("name", NAMES)
def test_a_unit_is_watched_restarted_and_capped(name: str) -> None:
    settings = unit_settings(UNITS / f"{name}.service")
    assert settings["Type"] == ["notify"]
    assert int(settings["WatchdogSec"][0]) > 0
    assert settings["Restart"] == ["on-failure"]
    assert settings["RestartPreventExitStatus"] == [str(int(Exit.CONFIG))] == [str(int(BridgeExit.CONFIG))]
    assert settings["StartLimitIntervalSec"] == ["0"]
    assert settings["OOMPolicy"] == ["continue"]
    assert {"MemoryMax", "LimitNOFILE", "TasksMax", "SystemCallFilter"} <= set(settings)


@pytest.mark.systemd
@pytest.mark.parametrize("name", NAMES)
def test_systemd_finds_nothing_wrong_with_a_unit(name: str, tmp_path: Path) -> None:
    """The program's place is the only thing that is not here."""
    text = (UNITS / f"{name}.service").read_text()
    unit = tmp_path / f"{name}.service"
    unit.write_text(re.sub(r"/opt/clma-edge/bin/(\S+)", str(Path(sys.executable).parent / r"\1"), text))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr.strip()) == (0, "")


@pytest.mark.systemd
@pytest.mark.parametrize("name", NAMES)
def test_systemd_rates_a_unit_well(name: str) -> None:
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--no-pager", str(UNITS / f"{name}.service")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", done.stdout)
    assert found is not None, done.stderr
    assert float(found[1]) <= EXPOSURE_MOST, done.stdout


@pytest.mark.long
@pytest.mark.systemd
def test_the_loop_closes_under_the_units_own_filters(tmp_path: Path, mosquitto: Mosquitto) -> None:
    """Serving, signing, the training worker with its niceness and its caps, a release and its activation."""
    fleet = ToyFleet(tmp_path, mosquitto, DRIFTS, rounds=1)
    try:
        start(fleet, "bridge", "server-bridge", fleet.bridge_dir / "bridge.toml")
        for gateway in DRIFTS:
            start(fleet, gateway, "edge-agent", fleet.agent_settings(gateway))
        fleet.wait("the loop to close", _closed, timeout_s=200)
        with fleet.store() as store:
            (done,) = [record for record in store.adaptations.rounds("a1") if record.replied]
            assert sorted(done.replied) == ["gw1", "gw2"]
    finally:
        statuses = fleet.stop()
    assert set(statuses.values()) == {0}


@pytest.mark.systemd
def test_the_filter_refuses_what_the_unit_does_not_allow() -> None:
    """Else the test above shows nothing."""
    tries = {
        "netlink": "socket.socket(socket.AF_NETLINK)",
        "chown": "os.chown('/', 0, 0)",
        "setuid": "os.setuid(os.getuid())",
        "executable memory": "mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)",
    }
    for what, call in tries.items():
        for unit in NAMES:
            done = confined(unit, [sys.executable, "-c", f"import mmap, os, socket\n{call}"])
            assert "PermissionError" in done.stderr, (what, unit, done.stderr)
    allowed = "os.nice(5); resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30)); print('allowed')"
    assert confined("edge-agent", [sys.executable, "-c", f"import os, resource\n{allowed}"]).stdout == "allowed\n"


def start(fleet: ToyFleet, name: str, program: str, settings: Path) -> None:
    words = [*_under(program), str(Path(sys.executable).parent / program), "run", "-c", str(settings)]
    fleet.children.start(name, sys.executable, words)


def confined(unit: str, words: list[str]) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, *_under(unit), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT, check=False)


def _under(unit: str) -> list[str]:
    return [str(ROOT / "tests" / "deploy" / "confined.py"), str(UNITS / f"{unit}.service")]


def _closed(store: Store) -> bool:
    done = [adaptation.status for adaptation in store.adaptations.all()] == [DONE]
    return done and all(known.state.cohort == "c1" for known in store.gateways.states().values())
