"""What gateways say of their sensors, in the store, the log and the fleet's table."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.messages import Event, SensorFaultEvent
from server_bridge.cli.fleet import app
from server_bridge.releases.provision import init_fleet
from server_bridge.store.events import Taken
from server_bridge.store.sensor_faults import lasting_faults
from server_bridge.store.store import Store
from server_bridge.store.view import fleet_view
from tests.store.stores import opened
from tests.training.tiny_bundle import tiny_bundle


@pytest.fixture
def bridge(tmp_path: Path) -> Path:
    init_fleet(tmp_path / "bridge", tiny_bundle(tmp_path / "bundle").path, "plant")
    _typed("gateway", "provision", "gw1", "-o", str(tmp_path / "gateways"), "-c", str(tmp_path / "bridge/bridge.toml"))
    return tmp_path / "bridge"


def _typed(*words: str) -> str:
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def fault(sensor: str, *, until_s: float | None = None, **fields: str | float) -> SensorFaultEvent:
    given = {"fault": "stuck", "unit": "C", "value": 21.5} | fields
    return SensorFaultEvent.model_validate(
        {"fault_id": sha256_hex(sensor.encode()), "sensor": sensor, "since_s": 100.0, "until_s": until_s, **given}
    )


def take(store: Store, sequence: int, body: SensorFaultEvent) -> Taken:
    event = Event(gateway="gw1", epoch="e1", sequence=sequence, low=1, time_s=1.0, body=body)
    return store.events.take(event, float(sequence))


def test_a_fault_is_on_record_when_it_begins_and_when_it_ends_and_shown_while_it_lasts(bridge: Path) -> None:
    config = str(bridge / "bridge.toml")
    store = opened(bridge)
    take(store, 1, fault("oil"))
    take(store, 2, fault("air", fault="unit", detail="read x 10", untold=3))
    store.close()
    shown = _typed("fleet", "-c", config)
    assert "gw1: sensor oil stuck at 21.5 C\n" in shown
    assert "gw1: sensor air unit at 21.5 C (read x 10)\n" in shown
    store = opened(bridge)
    take(store, 3, fault("oil", until_s=200.0))
    assert [view.sensor_faults for view in fleet_view(store, None)] == [("air unit at 21.5 C (read x 10)",)]
    store.close()
    assert "sensor oil" not in _typed("fleet", "-c", config)
    log = _typed("log", "-c", config)
    assert "sensor-fault: begins: gw1: oil stuck at 21.5 C\n" in log
    assert "sensor-fault: begins: gw1: air unit at 21.5 C (read x 10); 3 more were not told\n" in log
    assert "sensor-fault: ends: gw1: oil stuck at 21.5 C\n" in log


def test_a_gap_is_seen_and_does_not_last(bridge: Path) -> None:
    store = opened(bridge)
    take(store, 1, fault("time", fault="time-gap", unit="s", value=3600.0, until_s=3700.0))
    assert [(each.reason, each.detail) for each in store.decisions.recent()] == [
        ("seen", "gw1: time time-gap at 3600 s")
    ]
    assert lasting_faults((row.gateway, row.body) for row in store.events.recent()) == {}
    store.close()


def test_what_is_told_twice_is_on_record_once(bridge: Path) -> None:
    store = opened(bridge)
    assert take(store, 1, fault("oil")) is Taken.NEW
    assert take(store, 2, fault("oil")) is Taken.NEW
    assert len(store.decisions.recent()) == len(store.events.recent()) == 1
    take(store, 3, fault("oil", until_s=200.0))
    take(store, 4, fault("oil", until_s=200.0))
    assert len(store.decisions.recent()) == len(store.events.recent()) == 2
    store.close()
