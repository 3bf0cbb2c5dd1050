"""``server-bridge bundle``, as typed."""

from pathlib import Path

import onnx
import pytest
from typer.testing import CliRunner

from edge_agent.errors import DataError
from edge_agent.model.bundle import load_bundle
from server_bridge.cli.bundle import app
from tests.bundles.nets import classified, conv1d, save_npz


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    onnx.save(conv1d(), tmp_path / "net.onnx")
    save_npz(tmp_path / "held_out.npz", **classified(conv1d(), 120, seed=7))
    save_npz(tmp_path / "train.npz", **classified(conv1d(), 200, seed=6))
    return tmp_path


def typed(folder: Path, line: str) -> list[str]:
    """A command line whose words that name files are paths in the folder."""
    return [str(folder / word) if word.endswith((".npz", ".onnx", "_dir")) else word for word in line.split()]


BUILD = "build net.onnx --data held_out.npz --trainable *.w --trainable *.b --loss cross-entropy -o first_dir"
FIT = "fit first_dir --data train.npz --calibration held_out.npz --epochs 2 --seed 3 -o second_dir"


def test_build_fit_and_inspect(folder: Path) -> None:
    runner = CliRunner()
    built = runner.invoke(app, typed(folder, BUILD))
    assert built.exit_code == 0, built.output
    first = load_bundle(folder / "first_dir")
    assert first.manifest.name == "net"
    fitted = runner.invoke(app, typed(folder, FIT))
    assert fitted.exit_code == 0, fitted.output
    assert "held out: loss" in fitted.output
    second = load_bundle(folder / "second_dir")
    assert second.digest != first.digest
    shown = runner.invoke(app, typed(folder, "inspect second_dir"))
    assert shown.exit_code == 0
    assert second.digest in shown.output.replace("│", "").replace("\n", "").replace(" ", "")
    assert "loss-rise" in shown.output


def test_labels_that_the_model_does_not_predict_are_pointed_out(folder: Path) -> None:
    untrained = CliRunner().invoke(app, typed(folder, BUILD))
    assert "warning: the model does not predict these labels: accuracy" in untrained.stderr
    assert "bundle fit" in untrained.stderr
    fitted = CliRunner().invoke(app, typed(folder, FIT.replace("--epochs 2", "--epochs 6")))
    assert fitted.exit_code == 0
    assert "warning" not in fitted.stderr
    assert "held out: loss" in fitted.stdout


def test_refusal_reaches_the_caller(folder: Path) -> None:
    result = CliRunner().invoke(app, typed(folder, BUILD.replace("*.w", "nothing*")))
    assert isinstance(result.exception, DataError)
    assert "no float32 initialiser matches 'nothing*'" in str(result.exception)


def test_unknown_loss_is_a_usage_error(folder: Path) -> None:
    result = CliRunner().invoke(app, typed(folder, BUILD.replace("cross-entropy", "hinge")))
    assert result.exit_code == 2


def test_a_name_is_shown_as_it_is(folder: Path) -> None:
    """Not read as the terminal's markup, which it may not be."""
    named = [*typed(folder, BUILD), "--name", "[red]line[/nope]"]
    shown = CliRunner().invoke(app, named, catch_exceptions=False)
    assert shown.exit_code == 0
    assert "[red]line[/nope]" in shown.output


@pytest.mark.parametrize("word", ["--threads 100000", "--learning-rate inf", "--epochs 0"])
def test_numbers_that_cannot_work_are_wrong_use(folder: Path, word: str) -> None:
    assert CliRunner().invoke(app, typed(folder, f"{FIT} {word}")).exit_code == 2


def test_what_is_no_bundle_is_named_with_the_way_out(folder: Path) -> None:
    for words in (["inspect", str(folder / "absent")], ["inspect", str(folder / "net.onnx")], ["inspect", str(folder)]):
        with pytest.raises(DataError, match="bundle build"):
            CliRunner().invoke(app, words, catch_exceptions=False)
