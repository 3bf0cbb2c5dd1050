import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edge_agent.errors import ConfigError, TransientError
from server_bridge.demo.children import Children, dies_with_us, find_program

SLEEP = ["-c", "import time; print('up', flush=True); time.sleep(600)"]
STUBBORN = [
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)",
]
PYTHON = Path(sys.executable).name


def wait_until_up(log: Path) -> None:
    until_s = time.monotonic() + 60
    while "up" not in (log.read_text() if log.exists() else ""):
        assert time.monotonic() < until_s
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_leaving_ends_every_child_even_after_an_error(tmp_path: Path) -> None:
    pid = 0

    def fail_beside_a_child() -> None:
        nonlocal pid
        with Children(tmp_path) as children:
            pid = children.start("sleeper", PYTHON, SLEEP).process.pid
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        fail_beside_a_child()
    assert not is_running(pid)


def test_one_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        child = children.start("stubborn", PYTHON, STUBBORN)
        wait_until_up(child.log)
        assert children.stop(timeout_s=0.3) == {"stubborn": -9}


def test_an_early_end_is_reported_with_its_log(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        child = children.start("brief", PYTHON, ["-c", "import sys; print('no such broker'); sys.exit(3)"])
        child.process.wait(60)
        with pytest.raises(TransientError, match=r"(?s)brief ended with status 3.*no such broker"):
            children.check()


def test_the_peak_of_memory_is_read(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        child = children.start("sleeper", PYTHON, SLEEP)
        wait_until_up(child.log)
        children.check()
        assert child.peak_rss_bytes() > 1_000_000


def test_an_interrupt_from_the_terminal_does_not_reach_them(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        child = children.start("sleeper", PYTHON, SLEEP)
        assert os.getpgid(child.process.pid) == child.process.pid != os.getpgid(0)


@pytest.mark.skipif(not (dies_with_us() or os.environ.get("CI")), reason="setpriv of util-linux is not here")
def test_they_end_with_the_process_that_started_them_however_it_ends(tmp_path: Path) -> None:
    starter = (
        "import os, signal, sys, time; from pathlib import Path; from server_bridge.demo.children import Children\n"
        f"child = Children(Path({str(tmp_path)!r})).start('sleeper', {PYTHON!r}, {SLEEP!r})\n"
        # once it is no longer setpriv it is bound to us; while it becomes another program it has no command line
        "line = Path(f'/proc/{child.process.pid}/cmdline')\n"
        "while not (said := line.read_bytes()) or b'setpriv' in said: time.sleep(0.01)\n"
        "print(child.process.pid, flush=True); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    (tmp_path / "sleeper.log").touch()
    ended = subprocess.run([sys.executable, "-c", starter], capture_output=True, text=True, timeout=60, check=False)
    pid = int(ended.stdout)
    until_s = time.monotonic() + 60
    while is_running(pid):
        assert time.monotonic() < until_s
        time.sleep(0.01)


def test_a_command_that_is_not_installed_is_named() -> None:
    with pytest.raises(ConfigError, match="no-such-command"):
        find_program("no-such-command")
