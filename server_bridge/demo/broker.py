"""A broker process on 127.0.0.1: mosquitto, or the iotcore wheel where mosquitto cannot be had."""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from edge_agent.errors import ConfigError, TransientError
from server_bridge.demo.children import dies_with_us

BrokerKind = Literal["auto", "mosquitto", "iotcore"]

HOST = "127.0.0.1"
START_TIMEOUT_S = 15.0
STOP_TIMEOUT_S = 10.0
START_ATTEMPTS = 3
MAX_PACKET_BYTES = 1024 * 1024
_LOWEST_PORT = 20_000
_TRIES = 50
_OUTGOING_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")

# The child leaves when our end of the pipe closes, so it cannot outlive us.
_IOTCORE = (
    "import os, sys, threading\n"
    "from iotcore import Broker\n"
    "threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(0)), daemon=True).start()\n"
    "Broker(config_path=sys.argv[1]).run_forever()\n"
)


class BrokerProcess(ABC):
    """A broker in a child process, without TLS, on a free port that it keeps over restarts.

    Args:
        directory: its configuration, log and persistence; made if absent.
        port: ``None`` takes a free one at the first start.
    """

    name = "broker"

    def __init__(self, directory: Path, *, port: int | None = None) -> None:
        self.host = HOST
        self.directory = directory
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def port(self) -> int:
        """The port it listens on; known from the first start."""
        if self._port is None:
            raise RuntimeError("the broker has not been started")
        return self._port

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id while it runs."""
        if self._process is None:
            raise RuntimeError("the broker is not running")
        return self._process.pid

    def start(self) -> None:
        """Start, and wait until it accepts connections.

        Raises:
            TransientError: it did not come up; the end of its log is in the message.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        chosen_here = self._port is None
        for _ in range(START_ATTEMPTS):
            self._port = free_port() if self._port is None else self._port
            if not self._is_answered():
                self._spawn()
                if self._wait_until_ready():
                    return
                self.kill()
            self._port = None if chosen_here else self._port
        raise TransientError(f"{self.name} did not start: its port is in use, or: {self.log_end()}")

    def stop(self) -> None:
        """Stop in an orderly way; nothing to do if it does not run."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill -9, as a power cut would."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop in an orderly way and start on the same port."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """SIGSTOP: it holds its connections and says nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def log_end(self, characters: int = 500) -> str:
        """The end of its log."""
        log = self.directory / "broker.log"
        return log.read_text(errors="replace")[-characters:] if log.exists() else ""

    @abstractmethod
    def _command(self) -> Sequence[str]:
        """Write the configuration; returns the command line."""

    def _spawn(self) -> None:
        command = self._command()
        with (self.directory / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(  # in a group of its own: ^C is for who started it
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, process_group=0
            )

    def _wait_until_ready(self) -> bool:
        until_s = time.monotonic() + START_TIMEOUT_S
        while self.alive and time.monotonic() < until_s:
            if self._is_answered():
                return self.alive
            time.sleep(0.02)
        return False

    def _is_answered(self) -> bool:
        try:
            with socket.create_connection((self.host, self.port), timeout=0.5):
                return True
        except OSError:
            return False

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(how)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_TIMEOUT_S)
        if process.stdin is not None:
            process.stdin.close()


class Mosquitto(BrokerProcess):
    """The reference broker.

    Args:
        settings: further lines of mosquitto.conf.
        prefix: the words before the program, which run it.
    """

    name = "mosquitto"

    def __init__(
        self,
        directory: Path,
        *,
        port: int | None = None,
        settings: Sequence[str] = (),
        prefix: Sequence[str] = (),
    ) -> None:
        super().__init__(directory, port=port)
        self._settings = list(settings)
        self._prefix = list(prefix)

    def _command(self) -> Sequence[str]:
        program = find_mosquitto()
        if program is None:
            raise ConfigError("mosquitto is not on PATH or in /usr/sbin", "apt-get install mosquitto")
        lines = [
            f"listener {self.port} {self.host}",
            "persistence true",
            f"persistence_location {self.directory.absolute()}/",
            "autosave_interval 3600",
            "set_tcp_nodelay true",
            f"max_packet_size {MAX_PACKET_BYTES}",
            "max_inflight_messages 16",
            "max_queued_messages 10000",
            "log_dest stderr",
            "log_type error",
            "log_type warning",
            "log_type notice",
        ]
        if not any(line.startswith("allow_anonymous") for line in self._settings):
            lines.append("allow_anonymous true")
        if os.geteuid() == 0:
            lines.append("user root")
        path = self.directory / "mosquitto.conf"
        path.write_text("\n".join([*lines, *self._settings]) + "\n")
        return [*self._prefix, str(program), "-c", str(path)]


class IotCore(BrokerProcess):
    """rumqttd from the ``iotcore`` wheel: for the demo only; forgets retained messages at a restart."""

    name = "iotcore"

    def _command(self) -> Sequence[str]:
        path = self.directory / "iotcore.toml"
        path.write_text(
            "id = 0\n[router]\nid = 0\nmax_connections = 1000\nmax_outgoing_packet_count = 200\n"
            "max_segment_size = 104857600\nmax_segment_count = 10\n"
            f'[v5.1]\nname = "v5-1"\nlisten = "{self.host}:{self.port}"\nnext_connection_delay_ms = 1\n'
            "[v5.1.connections]\nconnection_timeout_ms = 60000\n"
            f"max_payload_size = {MAX_PACKET_BYTES}\nmax_inflight_count = 100\n"
        )
        return [sys.executable, "-c", _IOTCORE, str(path)]


def find_mosquitto() -> Path | None:
    """The mosquitto program on PATH or in /usr/sbin, where Debian puts it."""
    found = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    return Path(found) if found else None


def make_broker(kind: BrokerKind, directory: Path) -> BrokerProcess:
    """A broker of this kind, not yet started, that ends with the thread that starts it; ``auto`` prefers mosquitto.

    Raises:
        ConfigError: mosquitto was asked for and cannot be found.
    """
    if kind == "iotcore" or (kind == "auto" and find_mosquitto() is None):
        return IotCore(directory)
    if find_mosquitto() is None:
        raise ConfigError("mosquitto is not on PATH or in /usr/sbin", "apt-get install mosquitto")
    return Mosquitto(directory, prefix=dies_with_us())


def free_port() -> int:
    """A TCP port of 127.0.0.1 that was free a moment ago.

    Where that can be, it is one that the kernel gives to no outgoing connection: it would often be taken by one until a
    broker listens there, or while the broker is down for a restart.
    """
    chance, end = random.SystemRandom(), _first_outgoing_port()
    for _ in range(_TRIES if end > _LOWEST_PORT else 0):
        port = chance.randrange(_LOWEST_PORT, end)
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            return port
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _first_outgoing_port() -> int:
    """The first port that the kernel gives to connections without one; 0 where it does not tell."""
    try:
        return int(_OUTGOING_PORTS.read_text(encoding="ascii").split()[0])
    except (OSError, ValueError, IndexError):
        return 0
