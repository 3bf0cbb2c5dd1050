from pathlib import Path

import pytest

from edge_agent.config import ReplaySourceSection
from edge_agent.config import load_settings as load_agent_settings
from server_bridge.config import load_settings as load_bridge_settings
from server_bridge.demo.base import Groundwork
from server_bridge.demo.broker import IotCore
from server_bridge.demo.fleet_folder import FleetFolder, make_fleet
from server_bridge.demo.timing import ROUNDS, TRIGGER_SAMPLES
from server_bridge.releases.keys import OnlineKeys
from server_bridge.store.store import Store, store_url

PORT = 40_404


@pytest.fixture
def folder(tmp_path: Path, groundwork: Groundwork) -> FleetFolder:
    broker = IotCore(tmp_path / "broker", port=PORT)
    return make_fleet(tmp_path / "arm", "demo", "fedavg", groundwork, broker, seed=4)


def test_the_bridge_accepts_its_settings(folder: FleetFolder) -> None:
    settings = load_bridge_settings(folder.bridge_settings)
    assert (settings.bridge.fleet, settings.broker.port, settings.strategy.name) == ("demo", PORT, "fedavg")
    assert (settings.round.rounds, settings.round.seed) == (ROUNDS, 4)
    assert settings.trigger.min_samples == TRIGGER_SAMPLES
    assert OnlineKeys.load(folder.keys).command_id


def test_every_gateway_accepts_its_settings_and_is_registered(folder: FleetFolder, groundwork: Groundwork) -> None:
    for gateway, path in folder.gateways.items():
        settings = load_agent_settings(path)
        stream = groundwork.streams[gateway]
        assert (settings.gateway.id, settings.broker.port) == (gateway, PORT)
        assert isinstance(settings.source, ReplaySourceSection)
        assert settings.source.path.is_file()
        assert settings.source.loop_from_row == stream.rows_per_pass
        assert settings.monitor.bucket_s == pytest.approx(stream.bucket_s)
        assert settings.gateway.bundle.is_dir()
    store = Store(store_url(folder.bridge), folder.bridge / "blobs")
    assert [row.id for row in store.gateways.registered()] == list(folder.gateways)
    store.close()
