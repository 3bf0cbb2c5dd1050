"""Two agents with one id: an alarm that reaches the bridge, a long back-off, no storm, and both serve."""

import shutil
import time
from pathlib import Path

import pytest

from edge_agent.wire.messages import ErrorEvent
from server_bridge.store.store import Store
from tests.broker import Mosquitto
from tests.e2e.fleet import ToyFleet
from tests.e2e.toy import Drift

WATCHED_S = 30.0


@pytest.mark.long
@pytest.mark.timeout(720)
def test_two_agents_with_one_id_are_told_of_and_do_not_storm(tmp_path: Path, mosquitto: Mosquitto) -> None:
    fleet = ToyFleet(tmp_path, mosquitto, {"gw1": Drift("none")})
    folder = fleet.agent_settings("gw1").parent
    double = folder.with_name("double")
    shutil.copytree(folder, double)
    try:
        fleet.start()
        fleet.wait("the gateway", lambda store: bool(store.gateways.states()), timeout_s=120)
        fleet.children.start("double", "edge-agent", ["run", "-c", str(double / "agent.toml")])
        fleet.wait("the alarm", _alarmed, timeout_s=260)  # it waits out the back-off: up to 180 s
        before, served = _connections(mosquitto), _written(folder, double)
        time.sleep(WATCHED_S)
        assert _connections(mosquitto) - before <= 2
        assert all(now > then for now, then in zip(_written(folder, double), served, strict=True))
        assert _connections(mosquitto) <= 20
    finally:
        statuses = fleet.stop()
    assert set(statuses.values()) == {0}


def _alarmed(store: Store) -> bool:
    bodies = [event.body for event in store.events.recent(kinds=("error",))]
    return any(isinstance(body, ErrorEvent) and "uses this gateway's id" in body.problem for body in bodies)


def _connections(mosquitto: Mosquitto) -> int:
    """How often the id has connected, by the broker's own log."""
    return mosquitto.log_end(1_000_000).count(" as gw1 (")


def _written(*folders: Path) -> list[float]:
    return [max(path.stat().st_mtime for path in folder.rglob("samples.db*")) for folder in folders]
