"""Every legitimate use is allowed: a fleet closes its loop over mutual TLS on the production broker."""

import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from server_bridge.store.adaptations import DONE
from server_bridge.store.store import Store
from tests.e2e.fleet import ToyFleet
from tests.e2e.toy import Drift
from tests.security.broker import ProductionMosquitto

DRIFTS = {"gw1": Drift("permuted"), "gw2": Drift("flipped"), "gw3": Drift("none")}
PROGRAMS = Path(sys.executable).parent


def program(name: str, *words: str) -> str:
    """Run one of our commands to its end; what it printed."""
    done = subprocess.run([str(PROGRAMS / name), *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done.stdout


def _found(bridge_dir: Path) -> None:
    program("server-bridge", "pki", "init", "-d", str(bridge_dir))
    program("server-bridge", "pki", "broker", "127.0.0.1", "-d", str(bridge_dir))
    program("server-bridge", "pki", "bridge", "-d", str(bridge_dir))


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ToyFleet]:
    broker = ProductionMosquitto(tmp_path / "broker", tmp_path / "bridge" / "pki" / "broker")
    made = ToyFleet(tmp_path, broker, DRIFTS, founded=_found)
    broker.start()
    yield made
    made.stop()
    broker.kill()


def _closed(store: Store) -> bool:
    states = {gateway: known.state.cohort for gateway, known in store.gateways.states().items()}
    done = [adaptation.status for adaptation in store.adaptations.all()] == [DONE]
    drifted = {states.get("gw1"), states.get("gw2")}  # whose first round fails is regrouped second
    return done and drifted == {"c1", "c2"} and states.get("gw3") == "root"


@pytest.mark.long
@pytest.mark.mosquitto
def test_the_loop_closes_over_mutual_tls(fleet: ToyFleet) -> None:
    fleet.start()
    fleet.wait("the loop to close over TLS", _closed, timeout_s=200)
    report = program("edge-agent", "check", "-c", str(fleet.agent_settings("gw1")))
    assert "without TLS" not in report
    with fleet.store() as store:
        assert {flag.gateway for flag in store.flags.all()} == {"gw1", "gw2"}
        assert store.drops.all() == {}
    logs = [path.read_text(errors="replace") for path in fleet.directory.joinpath("logs").iterdir()]
    assert len(logs) == 4
    assert not any("Not authorized" in log for log in logs)
    for folder in (fleet.bridge_dir / "tls", fleet.bridge_dir / "pki", fleet.agent_settings("gw1").parent / "tls"):
        keys = list(folder.rglob("*.key"))
        assert keys
        assert all(stat.S_IMODE(key.stat().st_mode) == 0o600 for key in keys)
    assert set(fleet.stop().values()) == {0}
