"""How a service starts the agent: what is loaded until it serves, and what is not."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edge_agent.cli import service_settings
from edge_agent.cli.exits import Exit, told
from edge_agent.errors import ConfigError, DataError, EdgeError, StorageError
from tests.broker import CLOSED_PORT
from tests.e2e.gateway import RunningAgent, gateway_folder, provisioned

# Runs the program; when the first sample has been served, writes what is loaded and whether anything is collected.
_WATCHED = (
    "import gc, json, os, pathlib, sys\n"
    "from edge_agent.serving.server import ModelServer\n"
    "process = ModelServer.process\n"
    "def first(self, *words):\n"
    "    ModelServer.process = process\n"
    "    served = process(self, *words)\n"
    "    loaded = sorted(name for name, module in list(sys.modules.items()) if module)\n"
    "    pathlib.Path(os.environ['LOADED']).write_text(json.dumps(loaded))\n"
    "    return served\n"
    "ModelServer.process = first\n"
    "from edge_agent.cli import main\n"
    "import atexit\n"
    "atexit.register(lambda: pathlib.Path(os.environ['KEPT']).write_text(json.dumps([gc.isenabled(), "
    "gc.get_freeze_count()])))\n"
    "main()\n"
)
LATE = {"typer", "click", "pydantic_settings"}
AFTER_LOADING = LATE | {"paho", "tuf", "numpy.random", "edge_agent.training.descent"}

AFTER_SERVING = {f"edge_agent.{name}" for name in ("drift.faults", "training", "samples.store", "ota.updater")}


def test_the_first_sample_waits_for_nothing_that_serving_does_not_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOADED", str(tmp_path / "loaded.json"))
    monkeypatch.setenv("KEPT", str(tmp_path / "kept.json"))
    settings = gateway_folder(provisioned(tmp_path), tmp_path / "gateways", CLOSED_PORT)
    with RunningAgent(settings, [sys.executable, "-c", _WATCHED]) as agent:
        agent.wait("service", lambda: agent.number("served_samples") > 0)
        assert agent.stop()[0] == Exit.OK
    loaded = set(json.loads((tmp_path / "loaded.json").read_text()))
    assert {"edge_agent.runtime.serving_first", "onnxruntime"} <= loaded
    assert not loaded & LATE
    collects, kept = json.loads((tmp_path / "kept.json").read_text())
    assert (collects, kept > 50_000) == (True, True)


def test_what_serves_is_loaded_without_what_records_judges_trains_and_updates() -> None:
    program = "import sys, edge_agent.cli.serving, edge_agent.runtime.serving_first; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert not set(done.stdout.split()) & (AFTER_LOADING | AFTER_SERVING)


def test_loading_the_agent_loads_neither_the_link_nor_what_verifies_nor_what_trains() -> None:
    program = "import sys, edge_agent.cli.serving, edge_agent.runtime.agent; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert not set(done.stdout.split()) & AFTER_LOADING


@pytest.mark.parametrize(
    ("words", "file"),
    [
        (["run", "-c", "a.toml"], "a.toml"),
        (["run", "--config", "a.toml"], "a.toml"),
        (["run"], None),
        (["run", "-c"], None),
        (["run", "-c", "--help"], None),
        (["run", "-c", "a.toml", "--help"], None),
        (["run", "--config=a.toml"], None),
        (["check", "-c", "a.toml"], None),
        ([], None),
    ],
)
def test_only_the_services_words_are_read_without_the_command_line(words: list[str], file: str | None) -> None:
    assert service_settings(words) == (None if file is None else Path(file))


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("it", "do"), Exit.CONFIG),
        (DataError("it", "do"), Exit.CONFIG),
        (StorageError("it", "do"), Exit.STORAGE),
        (EdgeError("it", "do"), Exit.UNEXPECTED),
    ],
)
def test_an_error_is_told_with_its_hint_and_its_exit_code(
    error: EdgeError, code: Exit, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(SystemExit) as ended:
        told(fail)
    assert ended.value.code == code
    assert capsys.readouterr().err == "edge-agent: it\n  do\n"


def test_an_interrupt_before_it_serves_is_no_traceback() -> None:
    program = (
        "import os, signal\n"
        "from edge_agent.cli.exits import told\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background job ignores it
        f"told(lambda: os.kill(os.getpid(), {int(signal.SIGINT)}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False, env=dict(os.environ)
    )
    assert (done.returncode, done.stderr) == (130, "")
