"""How a gateway becomes one of the fleet: registered, and given the folder it starts from."""

import time
from collections.abc import Sequence
from pathlib import Path

from edge_agent.errors import ConfigError
from edge_agent.wire.topics import is_identifier
from server_bridge.config import load_settings
from server_bridge.fleet.registry import register
from server_bridge.releases.provision import provision_gateway
from server_bridge.store.keeper import open_beside


def enrol(settings_file: Path, gateway_ids: Sequence[str], out: Path) -> list[Path]:
    """Register gateways in the store and write a folder for each; the folders' paths.

    A running bridge notices them within a second of their first message.

    Args:
        settings_file: the bridge's ``bridge.toml``.
        out: gets one folder a gateway.

    Raises:
        ConfigError: an id is wrong, its folder exists, or there is no fleet.
        StorageError: the disk or the database refused.
    """
    for gateway in gateway_ids:
        if not is_identifier(gateway):
            raise ConfigError(f"gateway id {gateway!r} is not of the form [A-Za-z0-9_-]{{1,64}}")
    settings = load_settings(settings_file)
    data_dir = settings.bridge.data_dir
    store = open_beside(settings.bridge.store, data_dir, founding=True)
    try:
        folders = provision_gateway(data_dir, gateway_ids, out)
        with store.transaction():
            for gateway in gateway_ids:
                register(store.gateways, gateway, time.time())
    finally:
        store.close()
    return folders
