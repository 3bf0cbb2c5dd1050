"""A broker with an access list that is changed while it runs, and a gateway's settings for it."""

import os
import signal
import time
from pathlib import Path

from server_bridge.pki.acl import access_list
from tests.broker import new_mosquitto
from tests.e2e.gateway import FLEET, GATEWAY, gateway_folder

RELOAD_S = 0.5


class Listed:
    """Its list knows nobody at first.

    Args:
        bridge: the fleet's folder.
    """

    def __init__(self, bridge: Path, directory: Path) -> None:
        self.acl = directory / "acl"
        self.acl.write_text(access_list(FLEET, []))
        self.acl.chmod(0o644)
        directory.chmod(0o755)
        self.broker = new_mosquitto(directory, f"acl_file {self.acl}")
        user: dict[str, str | int | float | bool] = {"host": "127.0.0.1", "port": self.broker.port, "username": GATEWAY}
        self.settings = gateway_folder(bridge, directory / "gateways", self.broker.port, broker=user)

    def admit(self, text: str) -> None:
        """Install another list, as the operator does."""
        self.acl.write_text(text)
        os.kill(self.broker.pid, signal.SIGHUP)
        time.sleep(RELOAD_S)
