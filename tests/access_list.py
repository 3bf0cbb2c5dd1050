"""A broker with an access list that is changed while it runs, and a gateway's settings for it."""

import os
import signal
import time
from pathlib import Path

from server_bridge.pki.acl import access_list
from tests.broker import new_mosquitto
from tests.e2e.gateway import FLEET, GATEWAY, gateway_folder

RELOAD_S = 60.0
RELOADS = "Reloading config."


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
        self.broker = new_mosquitto(directory, f"acl_file {self.acl}", "log_type information")
        user: dict[str, str | int | float | bool] = {"host": "127.0.0.1", "port": self.broker.port, "username": GATEWAY}
        self.settings = gateway_folder(bridge, directory / "gateways", self.broker.port, broker=user)

    def admit(self, text: str) -> None:
        """Install another list, as the operator does."""
        self.acl.write_text(text)
        before = self._reloads()
        os.kill(self.broker.pid, signal.SIGHUP)
        until_s = time.monotonic() + RELOAD_S
        while self._reloads() == before:  # once it says so it looks at no client before it is done
            assert time.monotonic() < until_s, self.broker.log_end()
            time.sleep(0.02)

    def _reloads(self) -> int:
        return self.broker.log_end(1_000_000).count(RELOADS)
