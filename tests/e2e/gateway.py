"""One gateway's folder, as provisioned, and its agent as a process."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from server_bridge.demo.settings_files import Sections, amend
from server_bridge.releases.provision import init_fleet, provision_gateway
from tests.e2e.toy import Drift, toy_bundle, write_stream

FLEET, GATEWAY = "toy", "gw1"
PROGRAM = Path(sys.executable).parent / "edge-agent"
WAIT_S = 120.0
STOP_S = 15.0
"""What the units allow (``TimeoutStopSec``); the agent asks of its parts to be done in 4 s."""
STOP_LIMIT_S = 60.0


def provisioned(directory: Path) -> Path:
    """A fleet's folder with the toy bundle; gateways' folders are made from it."""
    init_fleet(directory / "bridge", toy_bundle(directory / "work").path, FLEET)
    return directory / "bridge"


def gateway_folder(bridge: Path, directory: Path, port: int, **sections: dict[str, str | int | float | bool]) -> Path:
    """The settings file of a gateway that replays clean samples, then drifted ones, at 200 Hz."""
    (folder,) = provision_gateway(bridge, [GATEWAY], directory)
    write_stream(folder / "stream.npz", Drift("permuted"), clean_rows=200, drifted_rows=1000, seed=3)
    given: Sections = {
        "broker": {"host": "127.0.0.1", "port": port},
        "source": {"kind": "replay", "path": "stream.npz", "rate_hz": 200.0, "loop": True, "loop_from_row": 200},
        "monitor": {"bucket_s": 1.0},
        "report": {"state_interval_s": 0.5},
    }
    amend(folder / "agent.toml", {**given, **sections})
    return folder / "agent.toml"


@dataclass
class Ended:
    """How a command ended."""

    status: int
    out: str
    err: str


def run(*words: str, **environment: str) -> Ended:
    """Run ``edge-agent`` to its end."""
    done = subprocess.run(
        [str(PROGRAM), *words],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env=os.environ | environment,
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


@dataclass
class RunningAgent(AbstractContextManager["RunningAgent"]):
    """``edge-agent run`` until the context ends; its log is ``agent.log`` beside the settings."""

    settings: Path
    command: Sequence[str] = (str(PROGRAM),)
    process: "subprocess.Popen[bytes]" = field(init=False)
    _before: int = field(init=False)
    """How many bytes of the log are of earlier runs."""

    def __post_init__(self) -> None:
        self._before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*self.command, "run", "-c", str(self.settings)], stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )

    @property
    def log(self) -> Path:
        return self.settings.with_name("agent.log")

    def status(self) -> dict[str, object]:
        """The status file: written at the first report, every 10 s, and at a stop."""
        path = self.settings.with_name("data") / "status.json"
        found = json.loads(path.read_text()) if path.exists() else {}
        assert isinstance(found, dict)
        return found

    def logged(self, event: str) -> bool:
        """Whether its log tells of this event, in this run."""
        return f'"event": "{event}"'.encode() in self.log.read_bytes()[self._before :]

    def number(self, name: str) -> float:
        value = self.status().get(name, 0)
        assert isinstance(value, int | float)
        return value

    def wait(self, what: str, seen: Callable[[], bool]) -> None:
        """Until ``seen()``; an agent that ends meanwhile is a failure with its log's end."""
        until_s = time.monotonic() + WAIT_S
        while not seen():
            tail = self.log.read_text(errors="replace")[-3000:]
            assert self.process.poll() is None, f"ended with {self.process.returncode}\n{tail}"
            assert time.monotonic() < until_s, f"still waiting for {what}\n{tail}"
            time.sleep(0.05)

    def peak_rss_bytes(self) -> int:
        """VmHWM."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("no VmHWM")

    def stop(self) -> tuple[int, float]:
        """SIGTERM; the exit status and the seconds it took."""
        began_s = time.monotonic()
        self.process.terminate()
        return self.process.wait(STOP_LIMIT_S), time.monotonic() - began_s

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(STOP_LIMIT_S)
