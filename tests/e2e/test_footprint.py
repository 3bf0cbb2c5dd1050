"""What a running agent weighs and what it has imported; what a gateway must have installed."""

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from server_bridge.store.store import Store
from tests.broker import Mosquitto
from tests.e2e.fleet import ToyFleet
from tests.e2e.gateway import RunningAgent, gateway_folder, provisioned
from tests.e2e.toy import Drift

ROOT = Path(__file__).resolve().parents[2]
HEAVY = {"flwr", "scipy", "onnx", "torch", "sklearn", "pandas", "sqlalchemy", "fastapi", "cryptography", "rich"}
INSTALL_S = 500.0
PEAK_BYTES = 112 * 1000 * 1000
# Runs the program, and at its end writes what sys.modules holds; a barred module's entry is None.
_WATCHED = (
    "import atexit, json, os, pathlib, sys\n"
    "names = lambda: sorted({name.split('.')[0] for name, module in sys.modules.items() if module})\n"
    "atexit.register(lambda: pathlib.Path(os.environ['LOADED']).write_text(json.dumps(names())))\n"
    "from edge_agent.cli import main\n"
    "main()\n"
)


def test_a_running_agent_is_light(tmp_path: Path, mosquitto: Mosquitto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOADED", str(tmp_path / "loaded.json"))
    fleet = ToyFleet(tmp_path, mosquitto, {"gw1": Drift("permuted")})
    try:
        fleet.start_bridge()
        with RunningAgent(fleet.agent_settings("gw1"), [sys.executable, "-c", _WATCHED]) as agent:
            agent.wait("service and a flag", lambda: agent.logged("drift_flagged"))
            fleet.wait("a verified release", _is_committed, timeout_s=180)
            peak = agent.peak_rss_bytes()
            assert agent.stop()[0] == 0
            assert agent.number("served_samples") > 0
    finally:
        fleet.stop()
    packages = set(json.loads((tmp_path / "loaded.json").read_text()))
    assert {"edge_agent", "onnxruntime", "tuf", "paho", "numpy"} <= packages
    assert not packages & HEAVY
    assert peak < PEAK_BYTES, f"{peak / 1e6:.1f} MB"


@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_gateways_lock_and_the_wheel_alone_are_enough_to_run_the_agent(
    tmp_path: Path, mosquitto: Mosquitto
) -> None:
    build = ["wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(tmp_path / "dist"), str(ROOT)]
    _run([sys.executable, "-m", "pip", "--disable-pip-version-check", *build])
    (wheel,) = (tmp_path / "dist").glob("clma_edge-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert tops == {"edge_agent", "server_bridge", f"{wheel.name.split('-py3')[0]}.dist-info"}
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, "--require-hashes", "-r", str(ROOT / "deploy" / "locks" / "gateway.txt")])
    _run([*pip, "--no-deps", str(wheel)])
    program = tmp_path / "venv" / "bin" / "edge-agent"
    assert _run([str(program), "version"]).strip() == "0.1.0"
    names = sorted(HEAVY - {"rich"})
    look = f"import importlib.util as u; print([name for name in {names} if u.find_spec(name)])"
    assert _run([str(python), "-c", look]).strip() == "[]"
    settings = gateway_folder(provisioned(tmp_path), tmp_path / "gateways", mosquitto.port)
    checked = _run([str(program), "check", "-c", str(settings)])
    assert checked.count("ok  ") == len(checked.splitlines())
    with RunningAgent(settings, [str(program)]) as agent:
        agent.wait("service and a flag", lambda: agent.logged("drift_flagged"))
        assert agent.stop()[0] == 0


def _is_committed(store: Store) -> bool:
    return [known.state.ota_state for known in store.gateways.states().values()] == ["committed"]


def _run(words: list[str]) -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=INSTALL_S, env=environment, cwd="/", check=False
    )
    assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
    return done.stdout
