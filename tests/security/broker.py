"""mosquitto with the configuration of deploy/, its paths and port changed and nothing else."""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from server_bridge.demo.broker import BrokerProcess, find_mosquitto, free_port

CONFIGURATION = Path(__file__).resolve().parents[2] / "deploy" / "mosquitto" / "mosquitto.conf"
INSTALLED = "/etc/mosquitto/clma"


class ProductionMosquitto(BrokerProcess):
    """Args: files: what `server-bridge pki` made for the broker; read at start and reload."""

    name = "mosquitto"

    def __init__(self, directory: Path, files: Path, *, port: int | None = None) -> None:
        super().__init__(directory, port=free_port() if port is None else port)
        self._files = files

    def reload(self) -> None:
        """SIGHUP: read the lists again; it takes effect within a turn of the broker's loop."""
        os.kill(self.pid, signal.SIGHUP)

    def _command(self) -> Sequence[str]:
        program = find_mosquitto()
        assert program is not None
        text = CONFIGURATION.read_text()
        for installed, here in (
            (f"{INSTALLED}/", f"{self._files}/"),
            ("\nlistener 8883\n", f"\nlistener {self.port} {self.host}\n"),
            ("persistence_location /var/lib/mosquitto/", f"persistence_location {self.directory}/"),
        ):
            assert installed in text
            text = text.replace(installed, here)
        path = self.directory / "mosquitto.conf"
        path.write_text(text + ("user root\n" if os.geteuid() == 0 else ""))
        return [str(program), "-c", str(path)]
