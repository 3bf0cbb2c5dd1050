"""^C while a program loads: quiet, status 130, of both programs."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edge_agent.link.interrupt import INTERRUPTED, quiet_while_loading

# Stands before the real package on the path: it says that loading has begun, and takes its time.
_SLOW = "import pathlib, time\npathlib.Path({marker!r}).touch()\ntime.sleep(60)\n"


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """What a shell starts in the background ignores ^C, and so would all that we start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("program", "arguments", "slow"),
    [
        ("edge_agent.cli", ["version"], "typer"),
        ("edge_agent.cli", ["run"], "onnxruntime"),
        ("edge_agent.cli", ["run", "-c", "agent.toml"], "onnxruntime"),
        ("server_bridge.cli", ["fleet"], "typer"),
        ("server_bridge.cli", ["demo"], "jinja2"),
    ],
)
def test_an_interrupt_amid_the_imports_is_quiet(tmp_path: Path, program: str, arguments: list[str], slow: str) -> None:
    marker = tmp_path / "loading"
    (tmp_path / f"{slow}.py").write_text(_SLOW.format(marker=str(marker)))
    command = [sys.executable, "-c", f"from {program} import main; main()", *arguments]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment) as process:
        until_s = time.monotonic() + 120
        while not marker.exists():
            assert process.poll() is None
            assert time.monotonic() < until_s
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=120)
    assert (process.returncode, out) == (INTERRUPTED, b"")


def test_afterwards_an_interrupt_is_what_it_was() -> None:
    before = signal.getsignal(signal.SIGINT)
    with quiet_while_loading():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


def test_one_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with quiet_while_loading():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


_TERMINATED_WHILE_LOADING = """
import os, signal
from edge_agent.link.interrupt import quiet_while_loading

def leave(number, frame):
    raise SystemExit(7)

signal.signal(signal.SIGTERM, leave)
with quiet_while_loading():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        sum(range(1000))
    except SystemExit as error:  # as the loading of a compiled module turns it into a failure of its own
        raise ImportError("initialization failed") from error
    print("loaded", flush=True)
print("never")
"""


def test_a_termination_is_handled_after_what_is_being_loaded_which_would_take_it_for_a_failure() -> None:
    command = [sys.executable, "-c", _TERMINATED_WHILE_LOADING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (7, "loaded\n", "")


@pytest.mark.parametrize("handler", [signal.SIG_DFL, signal.default_int_handler])
def test_afterwards_a_termination_is_what_it_was(handler: Callable[..., object] | signal.Handlers) -> None:
    before = signal.signal(signal.SIGTERM, handler)
    try:
        with quiet_while_loading():
            assert (signal.getsignal(signal.SIGTERM) is handler) == (handler is signal.SIG_DFL)
        assert signal.getsignal(signal.SIGTERM) is handler
    finally:
        signal.signal(signal.SIGTERM, before)


_STOPPED_WHILE_IT_HOLDS_THE_LOCK = """
import os, signal, threading
from edge_agent.link.interrupt import stop_on_signals
stopping = threading.Event()
stop_on_signals(stopping)
with stopping._cond:  # as Event.wait does on the main thread
    os.kill(os.getpid(), signal.SIGTERM)
assert stopping.wait(20)
"""


def test_a_signal_while_the_main_thread_holds_the_events_lock_is_no_deadlock() -> None:
    subprocess.run([sys.executable, "-c", _STOPPED_WHILE_IT_HOLDS_THE_LOCK], check=True, timeout=120)
