"""Bundles of tasks on a frozen classifier."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from edge_agent.errors import DataError
from edge_agent.model.bundle import FROZEN, Bundle, file_digests, load_bundle, write_bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.model.session import Session
from edge_agent.model.training_step import TrainingStep
from edge_agent.wire.tensors import encode_weights
from server_bridge.bundles.fit import FitSettings
from server_bridge.bundles.gradients.forward import Forward
from server_bridge.bundles.tailor.blocks import Block, plan_block
from server_bridge.bundles.tailor.build import TailorSettings, tailor_bundle, tailored_files
from server_bridge.bundles.tailor.fit import fit_task, score_tasks
from server_bridge.bundles.tailor.graph import block_of
from server_bridge.bundles.tailor.layers import read_backbone
from tests.bundles.nets import cnn2d, conv1d, drawn, initialisers, mlp, model_of, save_npz
from tests.bundles.tailor.backbones import TASKS, residual, tailored_bundle, two_tasks


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return tailored_bundle(tmp_path_factory.mktemp("tailored"), residual())


def logits(bundle: Bundle, weights: dict[str, np.ndarray], task: str, x: np.ndarray) -> np.ndarray:
    return InferenceModel(bundle, weights, task=task).run({"x": x})["y"]


def test_the_manifest_names_tasks_their_graphs_and_their_tensors(bundle: Bundle) -> None:
    manifest = bundle.manifest
    assert [(task.name, task.file, task.classes) for task in manifest.tasks] == [
        ("press", "infer.onnx", 4),
        ("weld", "infer-weld.onnx", 3),
    ]
    assert [(graph.name, graph.task) for graph in manifest.training] == [
        ("press-sgd", "press"),
        ("press-adam", "press"),
        ("weld-sgd", "weld"),
        ("weld-adam", "weld"),
    ]
    for graph in manifest.training:
        own = [spec.name for spec in manifest.trainable if spec.role == f"task:{graph.task}"]
        assert graph.trainable == own
    shapes = {spec.name: spec.shape for spec in manifest.trainable if spec.role == "task:weld"}
    assert shapes == {
        "weld.layer2.mix": [1, 2],
        "weld.layer2.from1": [6, 4, 1, 1],
        "weld.layer3.mix": [1, 3],
        "weld.layer3.from1": [6, 4, 1, 1],
        "weld.layer3.from2": [6, 6, 1, 1],
        "weld.head.weight": [6, 3],
        "weld.head.bias": [3],
    }


def test_k_bounds_how_far_back_proxies_reach() -> None:
    backbone = read_backbone(Forward.read(residual()))
    sources = {
        k: [[proxy.source for proxy in mix.proxies] for mix in plan_block(backbone, "t", 4, previous=k).mixes]
        for k in (0, 1, 2, 3)
    }
    assert sources == {0: [], 1: [[1], [2]], 2: [[1], [1, 2]], 3: [[1], [1, 2]]}


def test_a_block_survives_its_note_in_the_graph(bundle: Bundle) -> None:
    block = block_of(onnx.ModelProto.FromString(bundle.read("infer.onnx")))
    assert block is not None
    assert Block.from_json(block.to_json()) == block


def test_with_the_backbone_alone_in_the_mix_a_task_is_the_model(bundle: Bundle) -> None:
    weights = bundle.initial_weights()
    for name, value in weights.items():
        if name.endswith(".mix"):
            value[:, 1:] = -1e4
    x = two_tasks(residual(), 9)["x"]
    whole = Session("the model", residual().SerializeToString(), {}, threads=1).run({"x": x})["y"]
    np.testing.assert_allclose(logits(bundle, weights, "press", x), whole, rtol=1e-5, atol=1e-6)


def test_training_a_task_leaves_the_other_bit_for_bit(bundle: Bundle) -> None:
    data = two_tasks(residual(), 64)
    before, rows = bundle.initial_weights(), data["task"] == "weld"
    step = TrainingStep(bundle, "weld-adam", before)
    for _ in range(5):
        step.step({"x": data["x"][rows]}, data["label"][rows], learning_rate=0.01)
    after = step.weights()
    changed = {name for name in before if not np.array_equal(before[name], after[name])}
    assert changed == {name for name in before if name.startswith("weld.")}
    x = data["x"]
    assert np.array_equal(logits(bundle, before, "press", x), logits(bundle, after, "press", x))
    assert not np.array_equal(logits(bundle, before, "weld", x), logits(bundle, after, "weld", x))


def test_a_task_takes_no_label_beyond_its_own_classes(bundle: Bundle) -> None:
    x = two_tasks(residual(), 2)["x"]
    with pytest.raises(DataError, match=r"label 3 is outside 0\.\.2"):
        TrainingStep(bundle, "weld-sgd", bundle.initial_weights()).step({"x": x}, np.array([0, 3]), learning_rate=0.1)


def test_the_frozen_tensors_lie_in_the_bundle_once(tmp_path: Path) -> None:
    model = residual()
    big = next(tensor for tensor in model.graph.initializer if tensor.name == "b1.w")
    made = tailored_bundle(tmp_path, model)
    frozen = made.frozen("infer.onnx")
    assert set(frozen) == {"a2.w", "b1.w", "b2.w"}
    assert set(made.manifest.frozen) == {task.file for task in made.manifest.tasks} | {
        graph.file for graph in made.manifest.training
    }
    np.testing.assert_array_equal(frozen["b1.w"], initialisers(model)["b1.w"])
    for name in made.manifest.files:
        held = big.raw_data in made.read(name)
        assert held == (name == FROZEN), name


def test_a_frozen_tensor_that_is_not_there_is_named(bundle: Bundle, tmp_path: Path) -> None:
    files = {name: bundle.read(name) for name in bundle.manifest.files}
    files[FROZEN] = encode_weights({name: value for name, value in bundle.frozen_tensors().items() if name != "b1.w"})
    thin = write_bundle(tmp_path / "thin", bundle.manifest.model_copy(update={"files": file_digests(files)}), files)
    with pytest.raises(DataError, match=r"frozen\.safetensors has no tensor 'b1\.w', which infer-weld\.onnx needs"):
        InferenceModel(thin, thin.initial_weights(), task="weld")
    with pytest.raises(DataError, match=r"no tensor 'b1\.w', which train/press-sgd\.onnx needs"):
        TrainingStep(thin, "press-sgd", thin.initial_weights())


def test_models_that_share_the_frozen_tensors_give_the_same(bundle: Bundle) -> None:
    x, weights, held = two_tasks(residual(), 9)["x"], bundle.initial_weights(), bundle.frozen_tensors()
    for task in ("press", "weld"):
        shared = InferenceModel(bundle, weights, task=task, frozen=held).run({"x": x})["y"]
        assert np.array_equal(shared, logits(bundle, weights, task, x))


def test_fitting_a_task_learns_it_and_changes_nothing_else(tmp_path: Path) -> None:
    model = residual()
    start = tailored_bundle(tmp_path, model)
    train = save_npz(tmp_path / "train.npz", **two_tasks(model, 400, seed=6))
    held_out = save_npz(tmp_path / "held_out.npz", **two_tasks(model, 240, seed=7))
    fitted = fit_task(start.path, "weld", train, held_out, FitSettings(20, learning_rate=0.02), tmp_path / "fitted")
    before, after = score_tasks(start, held_out), score_tasks(fitted, held_out)
    assert before["press"] == after["press"]
    assert before["weld"].accuracy is not None
    assert after["weld"].accuracy is not None
    assert after["weld"].accuracy > 0.55 > 0.45 > before["weld"].accuracy
    assert after["weld"].loss < 0.8 * before["weld"].loss
    assert fitted.manifest.monitors != start.manifest.monitors


@pytest.mark.parametrize(
    "model", [mlp(), conv1d(), cnn2d(), mlp(last="Softmax")], ids=["mlp", "conv1d", "cnn2d", "softmax"]
)
def test_a_task_with_the_models_classes_begins_with_its_head(model: onnx.ModelProto) -> None:
    made = tailored_files(model, TailorSettings({"a": None}, previous=0, optimisers=("sgd",)))
    shape = [size.dim_value for size in model.graph.input[0].type.tensor_type.shape.dim][1:]
    x = np.random.default_rng(1).normal(size=(7, *shape)).astype(np.float32)
    whole = Session("the model", model.SerializeToString(), {}, threads=1).run({"x": x})["y"]
    ours = made.session("a").run({"x": x})["y"]
    if model.graph.node[-1].op_type == "Softmax":
        ours = np.exp(ours) / np.exp(ours).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(ours, whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("tasks", "problem"),
    [
        ({}, "no task is named"),
        ({"a b": None}, "'a b' has signs"),
        ({"a": 1}, "'a' has 1 classes"),
        ({"a": 10**12}, "'a' has 1000000000000 classes, 2 to 100000"),
        ({f"t{number}": None for number in range(13)}, "13 tasks with 4 optimisers are 65 graphs"),
    ],
)
def test_tasks_that_cannot_be_are_refused(tasks: dict[str, int | None], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        tailored_files(mlp(), TailorSettings(tasks))


def test_a_layer_ends_once_at_a_value() -> None:
    with pytest.raises(DataError, match="named twice"):
        tailored_files(mlp(), TailorSettings({"a": None}, at=["h", "h"]))


def test_a_name_that_the_model_has_is_refused() -> None:
    weights = drawn(np.random.default_rng(1), t_head_weight=(5, 3))
    model = model_of([helper.make_node("MatMul", ["x", "t.head.weight"], ["y"])], weights, shape=[5], output=[3])
    with pytest.raises(DataError, match=r"'t\.head\.weight', which task 't' needs"):
        tailored_files(model, TailorSettings({"t": None}))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"task": np.array(["press", "mill"] * 60)}, "rows of task 'mill'"),
        ({"label": np.full(120, 3)}, "label 3 of task 'weld' is outside 0..2"),
        ({"task": np.arange(120)}, "'task' is int64"),
    ],
)
def test_data_of_other_tasks_are_refused(tmp_path: Path, change: dict[str, np.ndarray], problem: str) -> None:
    data = save_npz(tmp_path / "data.npz", **(two_tasks(residual(), 120) | change))
    with pytest.raises(DataError, match=problem):
        tailor_bundle(residual(), data, TailorSettings(TASKS, optimisers=("sgd",)), tmp_path / "out")


def test_what_is_written_is_read_again(bundle: Bundle) -> None:
    assert load_bundle(bundle.path).digest == bundle.digest
    with pytest.raises(DataError, match=r"no task 'mill' \(it has 'press', 'weld'\)"):
        InferenceModel(bundle, bundle.initial_weights(), task="mill")


def test_long_work_tells_how_far_it_is(tmp_path: Path) -> None:
    data = save_npz(tmp_path / "data.npz", **two_tasks(mlp(), 330))
    heard: list[tuple[str, float]] = []
    notes: list[str] = []

    settings = TailorSettings(TASKS, previous=0, optimisers=("sgd",))
    tailor_bundle(mlp(), data, settings, tmp_path / "out", told=lambda *step: heard.append(step), noted=notes.extend)

    for monitor in ("loss-level", "label-free"):
        shares = [share for name, share in heard if name == monitor]
        assert (shares[0], shares[-1]) == (0.0, 1.0)
        assert shares == sorted(shares)
    assert any("label-free promises" in note for note in notes)
