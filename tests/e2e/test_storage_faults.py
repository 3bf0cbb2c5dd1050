"""A disk that is full or read-only when the agent starts, and files that it finds damaged."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from edge_agent.cli.exits import Exit
from server_bridge.demo.settings_files import amend
from tests.broker import CLOSED_PORT
from tests.e2e.gateway import WAIT_S, RunningAgent, gateway_folder, provisioned

DISK_BYTES = 24 * 1024 * 1024
SLOW_HZ = 2.0
"""The drift begins after a hundred seconds: a flag that is raised before the fault does not come again after it."""


def may_mount(folder: Path) -> bool:
    """Whether this process may mount a small file system."""
    if os.geteuid() != 0:
        return False
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(folder)], capture_output=True, check=False)
    if done.returncode == 0:
        subprocess.run(["umount", str(folder)], check=True)
    folder.rmdir()
    return done.returncode == 0


class Disk:
    """The file system under a gateway's data folder; without the right to mount, its access bits."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mounted = may_mount(folder)
        folder.mkdir()
        if self.mounted:
            self._mount(f"size={DISK_BYTES}", "-t", "tmpfs", "tmpfs")

    def refuse(self, how: str) -> None:
        if not self.mounted:
            self.folder.chmod(0o555)
        elif how == "read-only":
            self._mount("remount,ro")
        else:
            self._fill()

    def allow(self) -> None:
        if not self.mounted:
            self.folder.chmod(0o755)
        else:
            self._mount("remount,rw")
            (self.folder / "ballast").unlink(missing_ok=True)

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", "-l", str(self.folder)], check=True)

    def _fill(self) -> None:
        with (self.folder / "ballast").open("wb") as ballast, suppress(OSError):
            while True:
                os.write(ballast.fileno(), bytes(4096))

    def _mount(self, options: str, *what: str) -> None:
        subprocess.run(["mount", *what, "-o", options, str(self.folder)], check=True)


@contextmanager
def disk(folder: Path) -> Iterator[Disk]:
    made = Disk(folder)
    try:
        yield made
    finally:
        made.close()


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "first"), [("full", "after some service"), ("read-only", "never started before")], ids=["full", "read-only"]
)
def test_an_agent_that_starts_on_a_disk_that_refuses_serves_alone(tmp_path: Path, how: str, first: str) -> None:
    served = tmp_path / "served.jsonl"
    with disk(tmp_path / "disk") as under:
        settings = gateway_folder(
            provisioned(tmp_path),
            tmp_path / "gateways",
            CLOSED_PORT,
            gateway={"data_dir": str(under.folder)},
            sink={"kind": "jsonl", "path": str(served)},
        )
        if first == "after some service":
            amend(settings, {"source": {"rate_hz": SLOW_HZ}})
            with RunningAgent(settings) as agent:
                agent.wait("service", lambda: lines(served) > 0)
                assert agent.stop()[0] == 0
            amend(settings, {"source": {"rate_hz": 200.0}})
        under.refuse(how)
        with RunningAgent(settings) as agent:
            agent.wait("the fault to be named", lambda: agent.logged("serving_alone"))
            before = lines(served)
            agent.wait("service", lambda: lines(served) > before)
            time.sleep(2.0)
            assert agent.process.poll() is None
            under.allow()
            assert agent.process.wait(WAIT_S) == Exit.STORAGE
        with RunningAgent(settings) as agent:
            agent.wait("a flag", lambda: agent.logged("drift_flagged"))
            assert agent.stop()[0] == 0


@pytest.mark.long
def test_damaged_databases_and_a_zeroed_pointer_cost_no_service(tmp_path: Path) -> None:
    settings = gateway_folder(provisioned(tmp_path), tmp_path / "gateways", CLOSED_PORT)
    data = settings.with_name("data")
    with RunningAgent(settings) as agent:
        agent.wait("service", lambda: agent.number("served_samples") > 0)
        agent.process.kill()
        agent.process.wait(10.0)
    for file in (*data.glob("*.db"), *data.glob("*.db-wal"), data / "models" / "pointer.json"):
        file.write_bytes(bytes(file.stat().st_size))
    with RunningAgent(settings) as agent:
        agent.wait("a flag", lambda: agent.logged("drift_flagged"))
        assert agent.logged("database_set_aside") or agent.logged("database_empty")
        assert agent.stop()[0] == 0
