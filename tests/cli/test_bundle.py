"""``server-bridge bundle``, as typed."""

from pathlib import Path

import onnx
import pytest
from typer.testing import CliRunner

from edge_agent.errors import ConfigError, DataError
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


def test_options_of_losses_and_graphs_reach_the_bundle(folder: Path) -> None:
    options = (
        " --class-weight 1 --class-weight 2 --class-weight 0.5 --class-weight 1 --label-smoothing 0.1 --ignore-index -1"
        " --optimiser adam --optimiser sgd --subset last=d.*,!d.b --subset first=a.* --proximal --label-free entropy"
        " --weight-decay"
    )
    built = CliRunner().invoke(app, typed(folder, BUILD + options))
    assert built.exit_code == 0, built.output
    manifest = load_bundle(folder / "first_dir").manifest
    plain = ["sgd", "adam", "last-sgd", "last-adam", "first-sgd", "first-adam"]
    assert [graph.name for graph in manifest.training] == [
        *plain,
        *(f"prox-{name}" for name in plain),
        "entropy-sgd",
        "entropy-adam",
    ]
    last = manifest.training[2]
    assert (last.trainable, last.ignore_index, last.defaults["weight_decay"]) == (["d.w"], -1, 0.0)
    fitted = CliRunner().invoke(app, typed(folder, FIT + " --graph last-sgd --learning-rate 0.1"))
    assert fitted.exit_code == 0, fitted.output


def test_a_heads_graph_takes_embeddings_and_fits_no_whole_samples(folder: Path) -> None:
    CliRunner().invoke(app, typed(folder, BUILD + " --head --optimiser sgd"))
    result = CliRunner().invoke(app, typed(folder, FIT + " --graph head-sgd"))
    assert "'head-sgd' does not fit a whole model to labels (these do: sgd; a part is fitted by" in str(
        result.exception
    )


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        (" --subset last", "--subset 'last' is not NAME=PATTERN"),
        (" --subset last=", "--subset 'last=' is not NAME=PATTERN"),
        (" --subset last=d.* --subset last=a.*", "--subset 'last' is given twice"),
        (" --subset head-x=d.*", "a subset cannot be named 'head-x'"),
        (" --subset a/b=d.*", "a subset cannot be named 'a/b'"),
        (" --subset last=e.*", "subset 'last': no trainable tensor matches 'e.*'"),
        (" --subset last=d.*,!d.*", "subset 'last' has no tensor left to train"),
        (" --class-weight 1", "1 class weights are given, the model has 4 classes"),
        (" --ignore-index 99999999999", "99999999999 is no 32-bit integer"),
        (" --subset " + " --subset ".join(f"s{k}=d.*" for k in range(15)), "64 training graphs are wanted"),
    ],
)
def test_options_that_cannot_be_are_named(folder: Path, option: str, problem: str) -> None:
    result = CliRunner().invoke(app, typed(folder, BUILD + option))
    assert isinstance(result.exception, (DataError, ConfigError))
    assert problem in str(result.exception)
    assert not (folder / "first_dir").exists()


def test_graph_that_takes_no_labels_fits_nothing(folder: Path) -> None:
    CliRunner().invoke(app, typed(folder, BUILD + " --label-free entropy --optimiser sgd"))
    result = CliRunner().invoke(app, typed(folder, FIT + " --graph entropy-sgd"))
    assert "training graph 'entropy-sgd' does not fit a whole model to labels (these do: sgd)" in str(result.exception)
