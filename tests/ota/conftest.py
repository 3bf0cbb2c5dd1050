"""A provisioned gateway's updater, for every test of updates; a module with another bundle says which."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_agent.model.bundle import Bundle
from tests.ota.fleet_maps import FleetMaps
from tests.ota.gateway import GatewayParts, maps_of
from tests.training.tiny_bundle import tiny_bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return tiny_bundle(tmp_path_factory.mktemp("provisioned") / "bundle")


@pytest.fixture
def maps(bundle: Bundle) -> FleetMaps:
    return maps_of(bundle)


@pytest.fixture
def gateway(tmp_path: Path, maps: FleetMaps, bundle: Bundle) -> Iterator[GatewayParts]:
    parts = GatewayParts(tmp_path, maps, bundle)
    yield parts
    parts.close()
