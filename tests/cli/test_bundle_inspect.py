"""``edge-agent bundle inspect``: what a bundle is and costs."""

import json
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import helper
from typer.testing import CliRunner

from edge_agent.cli.bundle_trial import tried
from edge_agent.cli.commands import app
from edge_agent.cli.exits import Exit
from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle, file_digests, write_bundle
from server_bridge.bundles.build import BuildSettings, build_bundle
from tests.bundles.nets import classified, conv1d, save_npz


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("inspected")
    data = save_npz(folder / "c.npz", **classified(conv1d(), 100))
    settings = BuildSettings(
        ["*"], "cross-entropy", optimisers=("sgd", "adam"), subsets={"last": ["d.*"]}, label_free=("entropy",)
    )
    return build_bundle(conv1d(), data, settings, folder / "bundle")


def damaged(bundle: Bundle, folder: Path) -> Bundle:
    """The same bundle with a training graph that insists on seven samples."""
    files = {name: bundle.read(name) for name in bundle.manifest.files}
    graph = onnx.load_from_string(files["train/adam.onnx"])
    for node in graph.graph.node:
        node.input[:] = ["seven" if name == "label" else name for name in node.input]
    graph.graph.initializer.append(helper.make_tensor("size", onnx.TensorProto.INT64, [1], [7]))
    graph.graph.node.insert(0, helper.make_node("Reshape", ["label", "size"], ["seven"]))
    files["train/adam.onnx"] = graph.SerializeToString()
    manifest = bundle.manifest.model_copy(update={"files": file_digests(files)})
    return write_bundle(folder / "damaged", manifest, files)


def test_everything_of_a_bundle_is_shown_with_what_it_costs(bundle: Bundle) -> None:
    shown = CliRunner().invoke(app, ["bundle", "inspect", str(bundle.path), "--graph", "adam", "--graph", "last-sgd"])
    assert shown.exit_code == Exit.OK, shown.output
    for text in (
        bundle.digest,
        "classification of 4 classes by cross-entropy",
        "x float32 (n, 3, 30)",
        "y float32 (n, 4), logits",
        "loss-rise: batches of 32",
        "training graph adam: cross-entropy by adam",
        "training graph last-sgd: cross-entropy by sgd",
        "44 parameters in 2 tensors: d.w, d.b",
        "scalars learning_rate, clip_norm = 0, update_norm_cap = 0",
        "1 sample   trained on in",
        "32 samples served in",
        "sound: every file is as the manifest lists it, and every graph runs",
    ):
        assert text in shown.output
    assert "training graph sgd" not in shown.output


def test_json_has_the_same_and_measures_nothing_where_not_asked(bundle: Bundle) -> None:
    shown = CliRunner().invoke(app, ["bundle", "inspect", str(bundle.path), "--no-measure", "--json"])
    found = json.loads(shown.output)
    assert [graph["name"] for graph in found["graphs"]] == [spec.name for spec in bundle.manifest.training]
    adam, free = found["graphs"][1], found["graphs"][-1]
    parameters = sum(value.size for value in bundle.initial_weights().values())
    assert adam["parameters"] == parameters
    assert adam["buffer_bytes"] == 2 * 3 * 4 * parameters
    assert (free["fed"], free["scalars"]["diversity"]) == (["x", "class_prior"], 1.0)
    assert (found["inference"], found["problems"]) == ({}, [])


def test_trial_measures_in_a_process_of_its_own(bundle: Bundle) -> None:
    found = tried(bundle.path, "adam")
    assert found.problem == ""
    assert [trial.batch for trial in found.trials] == [1, 32]
    assert all(0 < trial.run_ms < 10_000 for trial in found.trials)
    assert found.start_bytes < found.trials[0].peak_bytes <= found.trials[1].peak_bytes


def test_graph_that_does_not_run_is_a_problem_by_name(bundle: Bundle, tmp_path: Path) -> None:
    path = damaged(bundle, tmp_path).path
    shown = CliRunner().invoke(app, ["bundle", "inspect", str(path), "--graph", "adam"])
    assert shown.exit_code == Exit.PROBLEM
    assert "FAIL  train/adam.onnx cannot run" in shown.output
    assert "sound" not in shown.output


def test_what_is_no_bundle_and_a_graph_it_lacks_are_named(bundle: Bundle, tmp_path: Path) -> None:
    none = CliRunner().invoke(app, ["bundle", "inspect", str(tmp_path)])
    assert "manifest.json is absent" in str(none.exception)
    lacking = CliRunner().invoke(app, ["bundle", "inspect", str(bundle.path), "--graph", "lamb"])
    assert isinstance(lacking.exception, DataError)
    assert "no training graph 'lamb' (it has 'sgd', 'adam', 'last-sgd'" in str(lacking.exception)


def test_inspection_imports_what_a_gateway_has(bundle: Bundle) -> None:
    """No onnx, no torch, no rich: they are not installed there."""
    code = (
        "import sys\n"
        "for name in ('onnx', 'torch', 'scipy', 'flwr', 'rich'): sys.modules[name] = None\n"
        "from edge_agent.cli.bundle_inspect import inspect, lines\n"
        "from pathlib import Path\n"
        "found, sound = inspect(Path(sys.argv[1]), ['sgd'], measure=True)\n"
        "print(sound, len(list(lines(found))) > 10)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(bundle.path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.stdout.split() == ["True", "True"], ended.stderr
