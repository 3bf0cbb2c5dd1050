"""A sensor that stands still, on real processes: told at the bridge, not trained on, and no drift."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from edge_agent.link.database import open_database
from edge_agent.model.bundle import load_bundle
from edge_agent.samples.store import SampleStore
from server_bridge.cli.fleet import app
from server_bridge.demo.settings_files import Sections, amend
from server_bridge.store.store import Store
from tests.broker import Mosquitto
from tests.e2e.fleet import ToyFleet
from tests.e2e.toy import CLASSES, Drift, draw

GATEWAY, SENSOR = "gw1", 2
ROWS, BEGIN, END = 4000, 600, 3000
NAME = f"axis{SENSOR}"
RATE_HZ = 125.0
HELD = 12
"""Equal readings that a sensor without repeats in its reference may give before it is taken for broken."""


def _stream(path: Path) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    x, label = draw(np.random.default_rng(11), ROWS)
    x[BEGIN:END, SENSOR] = x[BEGIN, SENSOR]
    np.savez(path, x=x, label=label, delay=np.full(ROWS, 0.05, np.float32))
    return x


def _told(store: Store) -> list[tuple[str, str]]:
    return [
        (each.reason, str(each.facts["sensor"])) for each in store.decisions.recent() if each.kind == "sensor-fault"
    ]


@pytest.mark.long
@pytest.mark.mosquitto
def test_a_sensor_that_stands_still_is_told_not_trained_on_and_no_drift(tmp_path: Path, mosquitto: Mosquitto) -> None:
    fleet = ToyFleet(tmp_path, mosquitto, {GATEWAY: Drift("none")})
    values = _stream(tmp_path / f"{GATEWAY}.npz")
    sections: Sections = {
        "source": {
            "kind": "replay",
            "path": str(tmp_path / f"{GATEWAY}.npz"),
            "rate_hz": RATE_HZ,
            "loop": False,
            "loop_from_row": 0,
        },
        "monitor": {"label_free": "always"},
        "samples": {"proof_share": 0.0},
    }
    amend(fleet.agent_settings(GATEWAY), sections)
    config = str(fleet.bridge_dir / "bridge.toml")
    try:
        fleet.start()
        fleet.wait("the fault", lambda store: _told(store)[:1] == [("begins", NAME)], timeout_s=120)
        shown = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["fleet", "-c", config], catch_exceptions=False)
        fleet.wait("its end", lambda store: [each for each, _ in _told(store)] == ["begins", "ends"], timeout_s=120)
        fleet.wait("the whole stream", lambda store: _served(store) == ROWS, timeout_s=120)
        with fleet.store() as store:
            flags = [flag.event for flag in store.flags.all() if flag.event.monitor == "label-free"]
            log = store.decisions.recent()
    finally:
        statuses = fleet.stop()
    assert set(statuses.values()) == {0}
    assert f"{GATEWAY}: sensor {NAME} stuck at {values[BEGIN, SENSOR]:.6g}" in shown.output
    # The toy's 800 rows of calibration promise no better than one false alarm in 50 batches: those before may come.
    assert [flag for flag in flags if BEGIN / RATE_HZ <= flag.first_drifted_time_s < END / RATE_HZ] == []
    begins = next(each for each in log if each.kind == "sensor-fault")
    assert begins.detail.startswith(f"{GATEWAY}: {NAME} stuck at ")
    status = json.loads((tmp_path / "gateways" / GATEWAY / "data" / "status.json").read_text())
    assert status["sensor_faults"] == ""
    assert END - BEGIN - HELD <= status["faulty_samples"] <= END - BEGIN + 600
    trained = _trained(tmp_path / "gateways" / GATEWAY / "data" / "samples.db", fleet)
    assert (trained[:, SENSOR] == values[BEGIN, SENSOR]).sum() <= HELD
    assert len(trained) > 900


def _served(store: Store) -> int:
    known = store.gateways.states().get(GATEWAY)
    return 0 if known is None else known.state.served_samples


def _trained(path: Path, fleet: ToyFleet) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """The features of all that a round would train on."""
    manifest = load_bundle(fleet.directory / "work" / "bundle").manifest
    database = open_database(path, synchronous="NORMAL")
    try:
        store = SampleStore(
            database,
            inputs=manifest.inputs,
            classes=CLASSES,
            proof_share=0.0,
            max_samples=20_000,
            label_wait_s=1e9,
        )
        found = store.training_set(None, 20_000).features["x"]
        return np.asarray(found, np.float32)
    finally:
        database.close()
