"""Real programs under a service manager's socket: fed while they move, starved while a part hangs."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker import CLOSED_PORT
from tests.e2e.gateway import RunningAgent, gateway_folder, provisioned
from tests.service_manager import WAIT_S, ServiceManager

WATCHDOG_S = 2.0
Source = dict[str, str | int | float | bool]
# The named method blocks for as long as the file that HANG names is there.
_HANGS = (
    "import os, pathlib, time\n"
    "from {module} import {owner}\n"
    "hang, real = pathlib.Path(os.environ['HANG']), {owner}.{method}\n"
    "def blocks(*words, **named):\n"
    "    while hang.exists():\n"
    "        time.sleep(0.05)\n"
    "    return real(*words, **named)\n"
    "{owner}.{method} = blocks\n"
    "from {program}.cli import main\n"
    "main()\n"
)

pytestmark = pytest.mark.long
AGENT_PARTS = {
    "pipeline": ("edge_agent.sources.replay", "ReplaySource", "read"),
    "recorder": ("edge_agent.samples.store", "SampleStore", "add"),
}
BRIDGE_PARTS = {
    "fleet-inbox": ("server_bridge.fleet.loops", "InboxStep", "__call__"),
    "controller": ("server_bridge.rounds.controller", "Controller", "look"),
}


def program(name: str, part: tuple[str, str, str]) -> list[str]:
    module, owner, method = part
    return [sys.executable, "-c", _HANGS.format(module=module, owner=owner, method=method, program=name)]


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServiceManager]:
    monkeypatch.setenv("HANG", str(tmp_path / "hang"))
    with ServiceManager(tmp_path / "notify") as manager:
        for name, value in manager.environment(WATCHDOG_S).items():
            monkeypatch.setenv(name, value)
        yield manager


def hang_and_resume(manager: ServiceManager, hang: Path, part: str) -> None:
    hang.touch()
    manager.wait(f"STATUS=hanging: {part}")
    assert not _told_of_life(manager.listen(WATCHDOG_S))
    hang.unlink()
    manager.wait("STATUS=running")
    manager.wait("WATCHDOG=1")


def _told_of_life(heard: list[str]) -> list[str]:
    """What would keep its manager from ending it; on a slow machine it may name further parts that hang."""
    return [message for message in heard if "WATCHDOG=1" in message or "STATUS=hanging" not in message]


@pytest.mark.parametrize("part", AGENT_PARTS)
def test_the_agent_starves_its_watchdog_while_a_part_hangs(part: str, tmp_path: Path, manager: ServiceManager) -> None:
    settings = gateway_folder(provisioned(tmp_path), tmp_path / "gateways", CLOSED_PORT)
    with RunningAgent(settings, program("edge_agent", AGENT_PARTS[part])) as agent:
        manager.wait("READY=1", lambda: agent.process.poll() is None)
        manager.wait("WATCHDOG=1")
        hang_and_resume(manager, tmp_path / "hang", part)
        assert agent.stop()[0] == 0
    manager.wait("STOPPING=1")
    assert '"part_hangs"' in agent.log.read_text()


def test_a_source_without_data_is_no_hang_and_an_ended_one_neither(tmp_path: Path, manager: ServiceManager) -> None:
    slow: Source = {"kind": "replay", "path": "stream.npz", "rate_hz": 0.01, "loop": False}
    ended: Source = {"kind": "replay", "path": "stream.npz", "rate_hz": 100_000.0, "loop": False}
    bridge = provisioned(tmp_path)
    for name, source in (("slow", slow), ("ended", ended)):
        settings = gateway_folder(bridge, tmp_path / name, CLOSED_PORT, source=source)
        with RunningAgent(settings) as agent:
            manager.wait("READY=1", lambda: agent.process.poll() is None)
            heard = manager.listen(2 * WATCHDOG_S)
            assert heard.count("WATCHDOG=1") > 2, "more often than once an interval"
            assert not [message for message in heard if "hanging" in message]


def test_the_watchdogs_signal_leaves_every_threads_stack_in_the_log(tmp_path: Path, manager: ServiceManager) -> None:
    """At rest: the interpreter reads the stacks of threads that go on meanwhile, and may then end by SIGSEGV."""
    slow: Source = {"kind": "replay", "path": "stream.npz", "rate_hz": 0.01, "loop": False}
    settings = gateway_folder(provisioned(tmp_path), tmp_path / "gateways", CLOSED_PORT, source=slow)
    with RunningAgent(settings) as agent:
        manager.wait("READY=1", lambda: agent.process.poll() is None)
        manager.listen(2 * WATCHDOG_S)
        agent.process.send_signal(signal.SIGABRT)
        assert agent.process.wait(WAIT_S) == -signal.SIGABRT
    log = agent.log.read_text()
    assert "Fatal Python error: Aborted" in log
    assert "pipeline.py" in log


@pytest.mark.parametrize("part", BRIDGE_PARTS)
def test_the_bridge_starves_its_watchdog_while_a_part_hangs(part: str, tmp_path: Path, manager: ServiceManager) -> None:
    settings = provisioned(tmp_path) / "bridge.toml"
    text = settings.read_text().replace("port = 1883", f"port = {CLOSED_PORT}")
    settings.write_text(text)
    command = [*program("server_bridge", BRIDGE_PARTS[part]), "run", "-c", str(settings)]
    with (tmp_path / "bridge.log").open("wb") as log:
        bridge = subprocess.Popen(command, stderr=log, env=os.environ)
    try:
        manager.wait("READY=1", lambda: bridge.poll() is None)
        manager.wait("WATCHDOG=1")
        hang_and_resume(manager, tmp_path / "hang", part)
        bridge.terminate()
        manager.wait("STOPPING=1")
        assert bridge.wait(WAIT_S) == 0
    finally:
        bridge.kill()
        bridge.wait(WAIT_S)
