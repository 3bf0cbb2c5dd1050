"""The commands under "On a real gateway", run as a reader would, in a fresh directory, on a real broker."""

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

from server_bridge.demo.children import Children
from server_bridge.demo.settings_files import amend
from tests.broker import Mosquitto
from tests.e2e.toy import Drift, draw, toy_net, write_stream

README = Path(__file__).resolve().parents[2] / "README.md"
LASTING = ("server-bridge run", "edge-agent run")
SECTION = "## On a real gateway"


def readme_commands() -> list[str]:
    """Indented command lines of the section, in order."""
    text = README.read_text(encoding="utf-8").split(SECTION)[1].split("\n## ")[0]
    return [line.strip() for line in text.splitlines() if line.startswith("       ") and line.strip()]


@pytest.mark.slow
def test_a_reader_gets_from_a_model_to_a_served_monitored_gateway(tmp_path: Path, mosquitto: Mosquitto) -> None:
    onnx.save(toy_net(), tmp_path / "model.onnx")
    x, label = draw(np.random.default_rng(3), 800)
    np.savez(tmp_path / "calibration.npz", x=x, label=label)
    write_stream(tmp_path / "plant.npz", Drift("none"), clean_rows=500, drifted_rows=100, seed=4)
    seen: dict[str, str] = {}
    with Children(tmp_path / "logs") as children:
        for command in readme_commands():
            words = shlex.split(command.replace("127.0.0.1:1883", f"{mosquitto.host}:{mosquitto.port}"))
            if command.startswith(LASTING):
                children.start(words[0], str(Path(sys.executable).parent / words[0]), _absolute(words[1:], tmp_path))
            else:
                seen[" ".join(words[:2])] = _run(words, tmp_path)
            if words[:3] == ["server-bridge", "gateway", "provision"]:
                _name_the_source(tmp_path)
            if words[:2] == ["edge-agent", "run"]:
                _wait_for_service(tmp_path, children)
        children.check()
        statuses = children.stop(10.0)
    assert set(statuses.values()) == {0}
    assert "FAIL" not in seen["edge-agent check"]
    assert "running: yes" in seen["edge-agent status"]
    assert "press-01" in seen["server-bridge fleet"]
    assert "started" in seen["server-bridge log"]


def test_the_section_has_the_commands_that_are_run() -> None:
    programs = {tuple(command.split()[:2]) for command in readme_commands()}
    assert {("server-bridge", "init"), ("edge-agent", "check"), ("edge-agent", "run")} <= programs


def _run(words: list[str], folder: Path) -> str:
    program = str(Path(sys.executable).parent / words[0])
    environment = os.environ | {"COLUMNS": "160"}
    done = subprocess.run(
        [program, *words[1:]], cwd=folder, capture_output=True, text=True, timeout=120, env=environment, check=False
    )
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def _absolute(words: list[str], folder: Path) -> list[str]:
    return [str(folder / word) if word.endswith(".toml") else word for word in words]


def _name_the_source(folder: Path) -> None:
    for settings in folder.glob("folders/*/agent.toml"):
        source: dict[str, str | float | bool] = {
            "kind": "replay",
            "path": str(folder / "plant.npz"),
            "rate_hz": 100.0,
            "loop": True,
        }
        amend(settings, {"source": source, "report": {"state_interval_s": 1.0}})


def _wait_for_service(folder: Path, children: Children) -> None:
    deadline = time.monotonic() + 60
    words = ["edge-agent", "status", "-c", "folders/press-01/agent.toml", "--json"]
    program = str(Path(sys.executable).parent / words[0])
    while time.monotonic() < deadline:
        children.check()
        done = subprocess.run(
            [program, *words[1:]], cwd=folder, capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode == 0 and '"connected": "True"' in done.stdout:
            return
        time.sleep(0.5)
    raise AssertionError("the agent did not connect")
