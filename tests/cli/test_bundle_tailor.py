"""``server-bridge bundle tailor``, ``fit --task`` and ``prune``, as typed."""

from pathlib import Path

import onnx
import pytest
from click.testing import Result
from typer.testing import CliRunner

from edge_agent.errors import ConfigError, DataError
from edge_agent.model.bundle import load_bundle
from server_bridge.cli.bundle import app
from tests.bundles.nets import conv1d, save_npz
from tests.bundles.tailor.backbones import two_tasks

TAILOR = "tailor net.onnx --data held_out.npz --task press --task weld=3 --optimiser adam -o first_dir"
FIT = "fit first_dir --task weld --data train.npz --calibration held_out.npz --epochs 3 -o second_dir"
PRUNE = "prune second_dir --data held_out.npz --threshold 0.05 -o third_dir"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    onnx.save(conv1d(), tmp_path / "net.onnx")
    save_npz(tmp_path / "held_out.npz", **two_tasks(conv1d(), 200, seed=7))
    save_npz(tmp_path / "train.npz", **two_tasks(conv1d(), 200, seed=6))
    return tmp_path


def typed(folder: Path, line: str) -> Result:
    """Run a command line whose words that name files are paths in the folder."""
    words = [str(folder / word) if word.endswith((".npz", ".onnx", "_dir")) else word for word in line.split()]
    return CliRunner().invoke(app, words)


def test_a_model_becomes_tasks_one_is_fitted_and_both_are_pruned(folder: Path) -> None:
    for line in (TAILOR, FIT, PRUNE):
        ran = typed(folder, line)
        assert ran.exit_code == 0, ran.output
        assert "weld" in ran.output
        assert "note: loss-level left out: " in ran.output
    first, second, third = (load_bundle(folder / f"{name}_dir") for name in ("first", "second", "third"))
    assert [graph.name for graph in first.manifest.training] == ["press-adam", "weld-adam"]
    changed = {
        name for name, value in second.initial_weights().items() if (value != first.initial_weights()[name]).any()
    }
    assert {name.split(".")[0] for name in changed} == {"weld"}
    assert len(third.manifest.trainable) < len(second.manifest.trainable)
    assert "trainable values, now" in ran.output


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("weld=3", "weld=three"), "'three' is no number of classes"),
        (("--task weld=3", "--task press"), "'press' is given twice"),
        (("--optimiser adam", "--optimiser lion"), "'lion' is unknown"),
    ],
)
def test_what_is_mistyped_is_named(folder: Path, change: tuple[str, str], problem: str) -> None:
    ran = typed(folder, TAILOR.replace(*change))
    assert isinstance(ran.exception, ConfigError)
    assert problem in ran.exception.problem


def test_fitting_needs_a_task_and_one_that_there_is(folder: Path) -> None:
    assert typed(folder, TAILOR).exit_code == 0
    ran = typed(folder, FIT.replace("--task weld", "--task mill"))
    assert isinstance(ran.exception, DataError)
    assert "has no task 'mill' (it has 'press', 'weld')" in ran.exception.problem
    ran = typed(folder, FIT.replace("--task weld ", ""))
    assert isinstance(ran.exception, DataError)
    assert (ran.exception.problem, ran.exception.hint) == (
        "bundle 'net' is trained task by task",
        "give --task, one of press, weld",
    )
