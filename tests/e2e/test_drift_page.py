"""The commands of docs/drift.md, run as they are written, on a made-up press."""

import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import helper

from edge_agent.runtime.drift_status import DRIFT_KEY, DriftStatus
from tests.bundles.nets import model_of, save_npz

PAGE = Path(__file__).resolve().parents[2] / "docs" / "drift.md"
BIN = Path(sys.executable).parent
STEP_S = 200.0
NAMES = ("temperature", "pressure", "flow")
DEVIATION = np.array([4.0, 0.5, 2.0])
CENTRES = np.array([[60.0, 6.0, 20.0], [72.0, 6.0, 20.0], [66.0, 7.5, 26.0]])


def page_commands() -> list[str]:
    """Everything that its last three sections say to type, in order."""
    lines = PAGE.read_text(encoding="utf-8").split("\n## Calibrate")[1].splitlines()
    return [line.strip() for line in lines if line.startswith(("    server-bridge ", "    edge-agent "))]


def press(rows: int, seed: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Readings of three kinds of stroke."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, rows)
    return (CENTRES[labels] + DEVIATION * rng.normal(size=(rows, 3))).astype(np.float32), labels


def lay_files(folder: Path) -> None:
    """What a reader would have: a model, data to calibrate with, a recording, an agent's settings."""
    scaled = CENTRES / DEVIATION**2
    weights = {"w": scaled.astype(np.float32), "b": (-0.5 * (scaled * CENTRES).sum(axis=1)).astype(np.float32)}
    net = model_of([helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)], weights, shape=[3], output=[3])
    onnx.save(net, folder / "model.onnx")
    features, labels = press(2400, 1)
    save_npz(folder / "calibration.npz", x=features, label=labels)
    features, labels = press(1600, 2)
    features[300:420, 2] = 20.5
    features[1000:, 1] += 1.0
    table = zip(1.7e9 + 60.0 * np.arange(1600), features, labels, strict=True)
    lines = [f"time,{','.join(NAMES)},label"]
    lines += [f"{at:.0f},{x[0]:.3f},{x[1]:.3f},{x[2]:.3f},{label}" for at, x, label in table]
    (folder / "recorded.csv").write_text("\n".join(lines) + "\n")
    (folder / "agent.toml").write_text(
        '[gateway]\nid = "gw1"\nfleet = "line1"\n[source]\nkind = "replay"\npath = "recorded.csv"\n'
    )
    (folder / "data").mkdir()
    status = {"written_s": time.time(), DRIFT_KEY: DriftStatus().to_document()}
    (folder / "data" / "status.json").write_text(json.dumps(status))


def typed(folder: Path, line: str) -> subprocess.CompletedProcess[str]:
    program, *words = shlex.split(line)
    environment = os.environ | {"COLUMNS": "120"}
    return subprocess.run(
        [BIN / program, *words],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=STEP_S,
        env=environment,
        check=False,
    )


@pytest.mark.long
def test_the_pages_commands_do_what_it_says(tmp_path: Path) -> None:
    lay_files(tmp_path)
    build, replay, status = page_commands()
    built = typed(tmp_path, build)
    assert built.returncode == 0, built.stderr
    for monitor in ("loss-rise", "loss-level", "label-free", "accuracy", "arrivals", "faults"):
        assert monitor in built.stdout
    assert "1 per 2 days" in built.stdout, "each of the two has half of the bundle's"
    replayed = typed(tmp_path, replay)
    assert replayed.returncode == 0, replayed.stderr
    assert "flow stuck" in replayed.stdout
    assert "pressure" in replayed.stdout
    assert (tmp_path / "replay.svg").read_text().startswith("<svg ")
    told = typed(tmp_path, status)
    assert told.returncode == 3, "nobody runs"
    assert told.stdout.startswith("none")


@pytest.mark.long
def test_a_promise_that_the_data_do_not_support_is_refused(tmp_path: Path) -> None:
    lay_files(tmp_path)
    build = page_commands()[0].replace('"1 per day"', '"1 per 30 days"')
    refused = typed(tmp_path, build)
    assert refused.returncode == 2
    assert "do not support 1 per 60 days" in refused.stderr
    assert "give about" in refused.stderr
    assert not (tmp_path / "bundle").exists()


if __name__ == "__main__":  # what the page shows
    where = Path(sys.argv[1])
    lay_files(where)
    for command in page_commands():
        done = typed(where, command)
        print(done.stdout, done.stderr)
