"""The steps under "On a real gateway", run as a reader would, for each machine in fresh directories.

Everything is run as written, in bash, below a folder a machine: what systemd, user accounts and the network between
the machines would do is done here in their place. ``systemctl`` starts what the installed unit says, watched as the
unit asks.
"""

import getpass
import json
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from server_bridge.demo.broker import find_mosquitto, free_port
from server_bridge.demo.children import Children
from tests.broker import Mosquitto
from tests.deploy.confined import unit_settings
from tests.e2e.fleet import STOP_S
from tests.e2e.plant import Plant
from tests.e2e.toy import draw, toy_bundle, toy_net
from tests.service_manager import ServiceManager

ROOT = Path(__file__).resolve().parents[2]
SECTION = "## On a real gateway"
STEP = re.compile(r"^(\d+)\. \*\*(Central|Gateway): ([^*]+)\*\*")
MACHINE_PATHS = re.compile(r"(?<![\w.])/(?=(?:opt|etc|var/lib|usr/local)/)")
IN_THE_CLONE = ("deploy", "edge_agent", "server_bridge", "pyproject.toml", "README.md", "LICENSE")
WAIT_S = 120.0
STEP_S = 500.0


@dataclass(frozen=True)
class Step:
    """A numbered step: which machine, its name, its command lines."""

    machine: str
    name: str
    lines: list[str]


def readme_steps() -> list[Step]:
    """The section's steps in order."""
    text = (ROOT / "README.md").read_text(encoding="utf-8").split(SECTION)[1].split("\n## ")[0]
    steps: list[Step] = []
    for line in text.splitlines():
        title = STEP.match(line)
        if title is not None:
            assert int(title[1]) == len(steps) + 1
            steps.append(Step(title[2].lower(), title[3], []))
        elif line.startswith("       ") and line.strip():
            steps[-1].lines.append(line.strip())
    return steps


@dataclass
class Machine:
    """A folder that stands for a machine's root; its user's home is ``root``."""

    folder: Path
    children: Children
    manager: ServiceManager
    ports: dict[str, int]
    said: list[str] = field(default_factory=list)

    @property
    def home(self) -> Path:
        return self.folder / "root"

    def prepare(self) -> None:
        for name in ("root", "opt", "etc/systemd/system", "etc/mosquitto", "var/lib", "usr/local/bin"):
            (self.folder / name).mkdir(parents=True)

    def run(self, lines: list[str], other: "Machine") -> None:
        """Run a step's lines; those for systemd and for the network are done here."""
        script: list[str] = []
        for line in lines:
            if line.startswith(("useradd ", "chown ")):
                continue
            if line.startswith(("systemctl ", "scp ")):
                self._bash(script)
                script = []
                self._systemctl(line.split()) if line.startswith("systemctl") else self._copy(line.split(), other)
            else:
                script.append(self.mapped(line))
        self._bash(script)

    def mapped(self, line: str) -> str:
        """The line below this machine's folder, as the user that runs the tests."""
        line = re.sub(r"runuser -u \S+ -- ", "", line)
        if line.startswith("install "):
            line = re.sub(r" -[og] \S+", "", line)
        line = line.replace("broker.plant.example:8883", f"127.0.0.1:{self.ports['fleet']}")
        line = line.replace("broker.plant.example", "127.0.0.1")
        if line == "port = 1883":
            line = f"port = {self.ports['plant']}"
        return MACHINE_PATHS.sub(f"{self.folder}/", line)

    def _bash(self, script: list[str]) -> None:
        """One shell a machine: the folder it is in stays."""
        if not script:
            return
        place = self.folder / "cwd"
        cwd = Path(place.read_text().strip()) if place.exists() else self.home
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        environment |= {"PATH": f"{self.folder}/usr/local/bin:{os.environ['PATH']}", "COLUMNS": "160"}
        done = subprocess.run(
            ["bash", "-euc", "\n".join([*script, f'pwd >"{place}"'])],
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=STEP_S,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, ("\n".join(script), done.stdout[-3000:], done.stderr[-3000:])
        self.said.append(done.stdout)

    def _copy(self, words: list[str], other: "Machine") -> None:
        assert words[:2] == ["scp", "-r"]
        assert words[-1] == "root@press-01:"
        for name in words[2:-1]:
            source = self.home / self.mapped(name)
            shutil.copytree(source, other.home / source.name)

    def _systemctl(self, words: list[str]) -> None:
        if words[1:] == ["restart", "mosquitto"]:
            self._start_mosquitto()
            return
        assert words[1:3] == ["enable", "--now"]
        (name,) = words[3:]
        settings = unit_settings(self.folder / "etc" / "systemd" / "system" / f"{name}.service")
        (command,) = settings["ExecStart"]
        program, *arguments = self.mapped(command).split()
        self.children.start(name, program, arguments)
        self.manager.wait("READY=1", lambda: self.children.members[name].alive)

    def _start_mosquitto(self) -> None:
        conf = self.folder / "etc" / "mosquitto" / "mosquitto.conf"
        (self.folder / "var" / "lib" / "mosquitto").mkdir(exist_ok=True)
        text = MACHINE_PATHS.sub(f"{self.folder}/", conf.read_text())
        text = text.replace("listener 8883", f"listener {self.ports['fleet']} 127.0.0.1")
        conf.write_text(f"{text}\nuser {getpass.getuser()}\n")
        self.children.start("mosquitto", str(find_mosquitto()), ["-c", str(conf)])


def fitted_model(folder: Path, out: Path) -> None:
    """A reader's model: the toy net with fitted weights, as ONNX."""
    weights = toy_bundle(folder).initial_weights()
    model = toy_net()
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(weights[tensor.name], tensor.name))
    onnx.save(model, out)


def contents(folder: Path) -> dict[Path, bytes]:
    """Every file below a folder."""
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def wait_for(status: Path, machines: Children) -> dict[str, object]:
    """Until the gateway is connected and its monitor has flagged the plant's drift."""
    until_s = time.monotonic() + WAIT_S
    found: dict[str, object] = {}
    while found.get("connected") is not True or not found.get("flags"):
        machines.check()
        assert time.monotonic() < until_s, found
        time.sleep(0.2)
        found = json.loads(status.read_text()) if status.exists() else {}
    return found


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_a_reader_gets_from_two_bare_machines_to_a_served_monitored_gateway(
    tmp_path: Path, mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fixture's broker is the plant's own; the fleet's is set up by the steps."""
    ports = {"fleet": free_port(), "plant": mosquitto.port}
    with ServiceManager(tmp_path / "notify") as manager, Children(tmp_path / "logs") as children:
        for name, value in manager.environment(60.0).items():
            monkeypatch.setenv(name, value)
        central, gateway = (Machine(tmp_path / name, children, manager, ports) for name in ("central", "gateway"))
        for machine in (central, gateway):
            machine.prepare()
        for name in IN_THE_CLONE:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, central.home / name)
        fitted_model(tmp_path / "work", central.home / "model.onnx")
        x, label = draw(np.random.default_rng(3), 800)
        np.savez(central.home / "calibration.npz", x=x, label=label)
        with Plant(mosquitto) as plant:
            for step in readme_steps():
                here, other = (central, gateway) if step.machine == "central" else (gateway, central)
                here.run(step.lines, other)
                if step.name == "check and start.":
                    settings = contents(gateway.folder / "etc/edge-agent")
                    plant.drifts()
                    status = wait_for(gateway.folder / "var/lib/edge-agent/status.json", children)
        statuses = children.stop(STOP_S)
    assert contents(gateway.folder / "etc/edge-agent") == settings  # the unit makes it read-only
    served, decisions = status["served_samples"], central.said[-1]
    assert isinstance(served, int)
    assert served > 0
    assert "FAIL" not in "".join(gateway.said)
    assert "without TLS" not in "".join(gateway.said)
    assert "running: yes" in gateway.said[-1]
    assert "press-01" in decisions
    assert "started" in decisions
    assert not [message for message in manager.heard if "hanging" in message]
    assert {name: statuses[name] for name in ("server-bridge", "edge-agent")} == {"server-bridge": 0, "edge-agent": 0}


def test_the_steps_name_both_machines_and_all_of_the_commands() -> None:
    steps = readme_steps()
    commands = [line for step in steps for line in step.lines]
    for words in (
        "server-bridge bundle build",
        "pki init",
        "gateway provision",
        "edge-agent check",
        "edge-agent status",
    ):
        assert any(words in line for line in commands), words
    units = {line.split("/")[-1] for line in commands if line.startswith("systemctl")}
    assert len(units) == 3
    assert {step.machine for step in steps} == {"central", "gateway"}
