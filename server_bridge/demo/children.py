"""The demo's own child processes: started with a log, watched, and never left behind."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from edge_agent.errors import ConfigError, TransientError

LOG_TAIL_CHARACTERS = 1500
THREADS_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(slots=True)
class Child:
    """A process and its log."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process.poll() is None

    def log_tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-LOG_TAIL_CHARACTERS:] if self.log.exists() else ""

    def peak_rss_bytes(self) -> int:
        """Its largest resident set so far, where the kernel tells; else 0."""
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return 0
        for line in status.splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        return 0


@dataclass(slots=True)
class Children:
    """Children of one arm; leaving the context ends every one of them."""

    logs: Path
    members: dict[str, Child] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self.logs.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(timeout_s=10.0)

    def start(self, name: str, program: str, arguments: Sequence[str]) -> Child:
        """Run one of the project's commands with one numeric thread; its output goes to ``<name>.log``.

        Raises:
            ConfigError: the command is not installed beside this Python.
        """
        environment = os.environ | dict.fromkeys(THREADS_VARIABLES, "1")
        command = [*dies_with_us(), find_program(program), *arguments]
        path = self.logs / f"{name}.log"
        with path.open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                process_group=0,  # ^C is for the demo, which ends them then: one that went first would seem a fault
            )
        child = Child(name, process, path)
        self.members[name] = child
        return child

    def check(self) -> None:
        """Refuse to go on without one of them.

        Raises:
            TransientError: one has ended; its status and the end of its log are in the message.
        """
        for child in self.members.values():
            if not child.alive:
                status = child.process.returncode
                raise TransientError(f"{child.name} ended with status {status}\n{child.log_tail()}", str(child.log))

    def stop(self, timeout_s: float) -> dict[str, int | None]:
        """SIGTERM to all, SIGKILL to who is left after ``timeout_s``; exit statuses by name."""
        for child in self.members.values():
            if child.alive:
                child.process.send_signal(signal.SIGTERM)
        until_s = time.monotonic() + timeout_s
        for child in self.members.values():
            try:
                child.process.wait(max(0.0, until_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait(10.0)
        statuses = {name: child.process.returncode for name, child in self.members.items()}
        self.members.clear()
        return statuses


def find_program(name: str) -> str:
    """A command of this project beside the Python that runs.

    Raises:
        ConfigError: it is not there.
    """
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise ConfigError(f"the command {name} is not installed", "install the project: make setup")
    return found


def dies_with_us() -> list[str]:
    """A prefix by which the kernel ends the child when this process is killed, where util-linux offers it."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "TERM", "--"] if setpriv else []
