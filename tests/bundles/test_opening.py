"""A model that onnxruntime dies of is refused by name, and the build lives on."""

import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from edge_agent.errors import DataError
from server_bridge.bundles.build import BuildSettings, build_bundle
from server_bridge.bundles.opening import refuse_deadly
from server_bridge.bundles.source import read_model
from tests.bundles.gradients.test_frozen import looped
from tests.bundles.nets import mlp

DEADLY = Path(__file__).parent / "exported" / "files" / "embedding-bag-as-traced.onnx"


def test_a_file_that_kills_onnxruntime_is_refused_with_the_way_out(tmp_path: Path) -> None:
    """Fails with the first onnxruntime that opens it; then nothing need be opened apart any more."""
    settings = BuildSettings(["*"], "cross-entropy")
    words = r"embedding-bag-as-traced\.onnx: onnxruntime [\d.]+ dies of it \(SIGSEGV\); it has If, Loop \(export it opt"
    with pytest.raises(DataError, match=words):
        build_bundle(DEADLY, tmp_path / "c.npz", settings, tmp_path / "bundle")
    assert not (tmp_path / "bundle").exists()


def test_a_loop_that_runs_is_read(tmp_path: Path) -> None:
    onnx.save(looped(), tmp_path / "m.onnx")
    assert read_model(tmp_path / "m.onnx") == looped()


def test_what_is_refused_in_an_orderly_way_is_left_to_the_build(tmp_path: Path) -> None:
    model = looped()
    model.graph.node[1].input[0] = "nothing"
    onnx.save(model, tmp_path / "m.onnx")
    assert read_model(tmp_path / "m.onnx") == model
    command = [sys.executable, "-m", "server_bridge.bundles.opening"]
    assert subprocess.run(command, input=model.SerializeToString(), check=False, timeout=60).returncode == 1


def test_a_model_without_branches_costs_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """One could not be started."""
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    refuse_deadly(Path("m.onnx"), mlp())
    with pytest.raises(FileNotFoundError):
        refuse_deadly(Path("m.onnx"), looped())
