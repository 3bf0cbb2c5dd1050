import sys
from pathlib import Path

import numpy as np
import pytest

from edge_agent.cli.exits import Exit
from edge_agent.config import load_settings
from edge_agent.link.database import open_database
from edge_agent.model.bundle import load_bundle
from edge_agent.runtime.instance import is_running
from edge_agent.runtime.serving_first import ServingFirst
from edge_agent.samples.reading import is_known
from server_bridge.demo.settings_files import Sections, amend
from server_bridge.releases.provision import init_fleet, provision_gateway
from tests.broker import CLOSED_PORT
from tests.e2e.gateway import FLEET, GATEWAY, RunningAgent, gateway_folder, provisioned, run
from tests.runtime.desk import wait
from tests.training.tiny_bundle import FEATURES, tiny_bundle


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return provisioned(tmp_path_factory.mktemp("serving-first"))


def _settings(bridge: Path, tmp_path: Path, **sections: dict[str, str | int | float | bool]) -> Path:
    return gateway_folder(bridge, tmp_path / "gateways", CLOSED_PORT, **sections)


def test_it_predicts_before_there_is_an_agent_and_keeps_what_was_served_for_its_recorder(
    bridge: Path, tmp_path: Path
) -> None:
    settings = load_settings(_settings(bridge, tmp_path))
    first = ServingFirst(settings)
    pipeline = first.model.pipeline
    wait(lambda: pipeline.served_samples > 0, "a prediction")
    assert is_running(settings.gateway.data_dir)
    first.end()
    assert not pipeline.alive
    waiting = [pipeline.recordables.get_nowait() for _ in range(pipeline.recordables.qsize())]
    assert sum(len(item.batch.ids) for item in waiting if item.batch is not None) == pipeline.served_samples
    assert pipeline.unrecorded_samples == 0
    first.lock.release()


# Runs the program; it is told to stop when the first sample has been served, while the rest of it is made.
_TOLD_TO_STOP = (
    "import os, signal, time\n"
    "from edge_agent.runtime.agent import Agent\n"
    "make = Agent.__init__\n"
    "def told(self, settings, first, stopping):\n"
    "    while not first.model.pipeline.served_samples:\n"
    "        time.sleep(0.01)\n"
    "    os.kill(os.getpid(), signal.SIGTERM)\n"
    "    make(self, settings, first, stopping)\n"
    "Agent.__init__ = told\n"
    "from edge_agent.cli import main\n"
    "main()\n"
)


def test_what_was_served_when_it_is_told_to_stop_amid_its_start_is_recorded(bridge: Path, tmp_path: Path) -> None:
    path = _settings(bridge, tmp_path)
    settings = load_settings(path)
    with RunningAgent(path, [sys.executable, "-c", _TOLD_TO_STOP]) as agent:
        assert agent.process.wait(60) == Exit.OK
    inputs = load_bundle(settings.gateway.bundle).manifest.inputs
    assert is_known(settings.gateway.data_dir / "samples.db", inputs, "0-0")
    assert agent.logged("agent_stopped")


def test_a_bundle_without_a_monitor_for_the_rest_ends_what_serves(tmp_path: Path) -> None:
    init_fleet(tmp_path / "bridge", tiny_bundle(tmp_path / "tiny").path, FLEET)
    (folder,) = provision_gateway(tmp_path / "bridge", [GATEWAY], tmp_path / "gateways")
    np.savez(folder / "stream.npz", x=np.zeros((50, FEATURES), np.float32), label=np.zeros(50, np.int64))
    sections: Sections = {"broker": {"host": "127.0.0.1"}, "source": {"kind": "replay", "path": "stream.npz"}}
    amend(folder / "agent.toml", sections)
    ended = run("run", "-c", str(folder / "agent.toml"))
    assert (ended.status, "monitor" in ended.err) == (Exit.CONFIG, True)


def test_where_the_rest_cannot_use_its_disk_the_model_serves_alone(bridge: Path, tmp_path: Path) -> None:
    path = _settings(bridge, tmp_path, sink={"kind": "jsonl", "path": "predictions.jsonl"})
    data = load_settings(path).gateway.data_dir
    data.mkdir()
    database = open_database(data / "samples.db", synchronous="NORMAL")
    database.define("samples", [f"CREATE TABLE future_{number} (a)" for number in range(200)])
    database.close()
    predictions = path.with_name("predictions.jsonl")
    with RunningAgent(path) as agent:
        agent.wait("serving alone", lambda: agent.logged("serving_alone"))
        before = predictions.stat().st_size if predictions.exists() else 0
        agent.wait("predictions", lambda: predictions.exists() and predictions.stat().st_size > before)
        assert agent.stop()[0] == Exit.OK
