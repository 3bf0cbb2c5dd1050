"""From a model to a bundle."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edge_agent.drift.loss_rise import MONITOR_NAME
from edge_agent.errors import DataError
from edge_agent.model.bundle import load_bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.model.session import Session
from edge_agent.model.training_step import TrainingStep
from server_bridge.bundles.build import BuildSettings, build_bundle
from tests.bundles.nets import (
    CNN2D_TRAINABLE,
    Array,
    classified,
    cnn2d,
    conv1d,
    drawn,
    mlp,
    model_of,
    regression,
    save_npz,
)

ALL = BuildSettings(["*"], "cross-entropy")


def calibration(tmp_path: Path, model: onnx.ModelProto) -> Path:
    return save_npz(tmp_path / "c.npz", **classified(model, 100))


def test_manifest_says_what_the_model_is(tmp_path: Path) -> None:
    model = conv1d()
    settings = BuildSettings(["*"], "cross-entropy", name="watch", label_names=["a", "b", "c", "d"], monitor_batch=16)
    manifest = build_bundle(model, calibration(tmp_path, model), settings, tmp_path / "b").manifest
    assert (manifest.name, manifest.kind, manifest.classes, manifest.opset) == ("watch", "classification", 4, 17)
    assert [(spec.name, spec.dtype, spec.shape) for spec in manifest.inputs] == [("x", "float32", ["n", 3, 30])]
    assert [(spec.name, spec.role) for spec in manifest.outputs] == [("y", "logits")]
    assert [spec.name for spec in manifest.trainable] == ["a.w", "a.b", "b.w", "b.b", "c.w", "c.b", "d.w", "d.b"]
    assert [graph.name for graph in manifest.training] == ["sgd", "momentum", "adam", "adamw"]
    assert manifest.monitors[MONITOR_NAME].batch_size == 16
    assert manifest.monitors[MONITOR_NAME].parameters["clip"] == pytest.approx(np.log(4))


def test_same_inputs_give_the_same_address(tmp_path: Path) -> None:
    data = calibration(tmp_path, cnn2d())
    settings = BuildSettings(CNN2D_TRAINABLE, "cross-entropy", seed=3)
    digests = {build_bundle(cnn2d(), data, settings, tmp_path / name).digest for name in ("one", "two")}
    assert len(digests) == 1


def test_files_give_the_same_bundle_as_objects(tmp_path: Path) -> None:
    onnx.save(mlp(), tmp_path / "mlp.onnx")
    data = calibration(tmp_path, mlp())
    from_file = build_bundle(tmp_path / "mlp.onnx", data, ALL, tmp_path / "one")
    assert from_file.digest == build_bundle(mlp(), data, ALL, tmp_path / "two").digest


def test_inference_graph_finds_its_weights_in_the_safetensors_file(tmp_path: Path) -> None:
    """The offsets are right for a reader that follows them: onnx's own loader."""
    bundle = build_bundle(mlp(), calibration(tmp_path, mlp()), ALL, tmp_path / "b")
    loaded = onnx.load(bundle.path / "infer.onnx")
    session = Session("loaded", loaded.SerializeToString(), {}, threads=1)
    x = classified(mlp(), 9)["x"]
    expected = InferenceModel(bundle, bundle.initial_weights()).run({"x": x})["y"]
    assert np.array_equal(session.run({"x": x})["y"], expected)


def test_last_softmax_is_served_as_log_probabilities(tmp_path: Path) -> None:
    model = mlp(last="Softmax")
    bundle = build_bundle(model, calibration(tmp_path, model), ALL, tmp_path / "b")
    data = classified(model, 9)
    served = InferenceModel(bundle, bundle.initial_weights()).run({"x": data["x"]})["y"]
    probabilities = Session("given", model.SerializeToString(), {}, threads=1).run({"x": data["x"]})["y"]
    np.testing.assert_allclose(np.exp(served), probabilities, rtol=1e-5)
    loss = TrainingStep(bundle, "sgd", bundle.initial_weights()).step(
        {"x": data["x"]}, data["label"], learning_rate=0.1
    )
    assert loss == pytest.approx(float(-served[np.arange(9), data["label"]].mean()), rel=1e-5)


def test_probabilities_used_inside_the_graph_are_refused(tmp_path: Path) -> None:
    model = mlp(last="Softmax")
    model.graph.node.append(helper.make_node("Sqrt", ["y"], ["root"]))
    model.graph.output.append(helper.make_tensor_value_info("root", TensorProto.FLOAT, ["n", 3]))
    with pytest.raises(DataError, match="probabilities 'y' are used inside the graph"):
        build_bundle(model, calibration(tmp_path, model), ALL, tmp_path / "b")


def test_regression_and_further_outputs(tmp_path: Path) -> None:
    model = regression()
    model.graph.output.append(helper.make_tensor_value_info("t", TensorProto.FLOAT, ["n", 6]))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 4)).astype("f4")
    data = save_npz(tmp_path / "c.npz", x=x, label=x.sum(axis=1))
    bundle = build_bundle(model, data, BuildSettings(["*"], "mse"), tmp_path / "b")
    assert [(spec.name, spec.role) for spec in bundle.manifest.outputs] == [("y", "value"), ("t", "embedding")]
    assert bundle.manifest.classes is None
    outputs = InferenceModel(bundle, bundle.initial_weights()).run({"x": x})
    assert {name: value.shape for name, value in outputs.items()} == {"y": (100, 1), "t": (100, 6)}
    step = TrainingStep(bundle, "adam", bundle.initial_weights())
    losses = [step.step({"x": x}, x.sum(axis=1), learning_rate=0.02) for _ in range(200)]
    assert losses[-1] < 0.2 * losses[0]


@pytest.mark.parametrize("shape", [[4], [4, 2]])
def test_output_that_does_not_suit_the_loss_is_named(tmp_path: Path, shape: list[int]) -> None:
    weights: dict[str, Array] = drawn(np.random.default_rng(0), w=(4,))
    if len(shape) == 1:
        model = model_of([helper.make_node("Mul", ["x", "w"], ["y"])], weights, shape=[4], output=[4])
        settings, data = BuildSettings(["*"], "mse"), {"x": np.zeros((80, 4), "f4"), "label": np.zeros(80)}
        problem = r"output 'y' has shape .*mse needs \(batch,\) or \(batch, 1\)"
    else:
        model = model_of(
            [helper.make_node("Add", ["x", "w"], ["y"])], {"w": np.zeros(2, "f4")}, shape=[4, 2], output=[4, 2]
        )
        settings, data = ALL, {"x": np.zeros((80, 4, 2), "f4"), "label": np.zeros(80, dtype=int)}
        problem = r"output 'y' has shape .*cross-entropy needs \(batch, classes\)"
    with pytest.raises(DataError, match=problem):
        build_bundle(model, save_npz(tmp_path / "c.npz", **data), settings, tmp_path / "b")


@pytest.mark.parametrize("batch", [1, 3, 99, 100])
def test_batch_size_fixed_inside_the_graph_is_found(tmp_path: Path, batch: int) -> None:
    weights = drawn(np.random.default_rng(0), a_w=(6, 3)) | {"size": np.array([batch, 6], dtype=np.int64)}
    nodes = [helper.make_node("Reshape", ["x", "size"], ["r"]), helper.make_node("MatMul", ["r", "a.w"], ["y"])]
    model = model_of(nodes, weights, shape=[2, 3], output=[3])
    with pytest.raises(DataError, match=r"a batch of \d+: infer.onnx cannot run: .*free batch size"):
        build_bundle(model, calibration(tmp_path, model), BuildSettings(["a.w"], "cross-entropy"), tmp_path / "b")


def test_too_little_data_is_refused(tmp_path: Path) -> None:
    data = save_npz(tmp_path / "c.npz", **classified(mlp(), 40))
    with pytest.raises(DataError, match=r"40.* held-out losses cannot calibrate batches of 32"):
        build_bundle(mlp(), data, ALL, tmp_path / "b")
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("content", "problem"), [(b"garbage", "is not an ONNX file"), (b"", "not valid ONNX"), (None, "does not exist")]
)
def test_file_that_is_no_model_is_named(tmp_path: Path, content: bytes | None, problem: str) -> None:
    path = tmp_path / "m.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DataError, match=problem) as caught:
        build_bundle(path, tmp_path / "c.npz", ALL, tmp_path / "b")
    assert caught.value.hint


def test_taken_directory_is_refused(tmp_path: Path) -> None:
    data = calibration(tmp_path, mlp())
    bundle = build_bundle(mlp(), data, ALL, tmp_path / "b")
    with pytest.raises(DataError, match="exists and is not empty"):
        build_bundle(mlp(), data, ALL, tmp_path / "b")
    assert load_bundle(tmp_path / "b") == bundle


def test_sequence_of_embeddings_trains_its_head(tmp_path: Path) -> None:
    """Integer inputs and a lookup stay frozen below a trained head."""
    weights: dict[str, Any] = drawn(np.random.default_rng(0), table=(10, 6), h_w=(30, 3))
    nodes = [
        helper.make_node("Gather", ["table", "x"], ["e"]),
        helper.make_node("Flatten", ["e"], ["f"]),
        helper.make_node("MatMul", ["f", "h.w"], ["y"]),
    ]
    model = model_of(nodes, weights, shape=[5], output=[3], input_type=TensorProto.INT64)
    rng = np.random.default_rng(0)
    x, label = rng.integers(0, 10, (100, 5)), rng.integers(0, 3, 100)
    data = save_npz(tmp_path / "c.npz", x=x, label=label)
    bundle = build_bundle(model, data, BuildSettings(["h.w"], "cross-entropy"), tmp_path / "b")
    step = TrainingStep(bundle, "adam", bundle.initial_weights())
    losses = [step.step({"x": x}, label, learning_rate=0.02) for _ in range(50)]
    assert losses[-1] < losses[0]
    whole = build_bundle(model, data, ALL, tmp_path / "c")
    step = TrainingStep(whole, "adam", whole.initial_weights())
    assert [step.step({"x": x}, label, learning_rate=0.02) for _ in range(50)][-1] < losses[-1]
    assert not np.array_equal(step.weights()["table"], weights["table"])


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (BuildSettings(["*"], "cross-entropy", name="a\nb"), "control character"),
        (BuildSettings(["*"], "cross-entropy", name="\udcff"), "not UTF-8"),
        (BuildSettings(["*"], "cross-entropy", name="a" * 129), "129 characters"),
        (BuildSettings(["*"], "cross-entropy", label_names=["a", "b"]), "2 label names .* 3 classes"),
        (BuildSettings(["*"], "cross-entropy", label_names=["a", "b", "c" * 200]), "200 characters"),
    ],
)
def test_names_that_no_manifest_can_hold_are_refused(tmp_path: Path, settings: BuildSettings, problem: str) -> None:
    data = calibration(tmp_path, mlp())
    with pytest.raises(DataError, match=problem):
        build_bundle(mlp(), data, settings, tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_more_classes_than_a_manifest_can_hold_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="100001 classes"):
        build_bundle(mlp(classes=100_001), calibration(tmp_path, mlp()), ALL, tmp_path / "b")


def test_types_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    """A float16 input of float32 weights: onnx's checker lets it pass, and infers no shape for what follows."""
    model = mlp()
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    with pytest.raises(DataError, match="the model is refused by onnxruntime"):
        build_bundle(model, calibration(tmp_path, mlp()), ALL, tmp_path / "b")


def test_a_subsets_graph_trains_beside_the_weights_of_now_not_those_of_the_build(tmp_path: Path) -> None:
    data = save_npz(tmp_path / "c.npz", **classified(mlp(), 100))
    first = mlp().graph.initializer[0].name
    settings = BuildSettings(trainable=["*"], loss="cross-entropy", optimisers=["sgd"], subsets={"part": [first]})
    bundle = build_bundle(mlp(), data, settings, tmp_path / "bundle")
    rng = np.random.default_rng(3)
    now = {n: (v + rng.normal(size=v.shape)).astype(np.float32) for n, v in bundle.initial_weights().items()}
    batch = classified(mlp(), 16)
    whole, part = TrainingStep(bundle, "sgd", now), TrainingStep(bundle, "part-sgd", bundle.initial_weights())
    part.load(now)
    losses = [step.step({"x": batch["x"]}, batch["label"], learning_rate=0.1) for step in (whole, part)]
    assert losses[0] == losses[1]
    np.testing.assert_allclose(part.weights()[first], whole.weights()[first], rtol=0, atol=1e-6)
    assert all((part.weights()[name] == now[name]).all() for name in now if name != first)
