"""Heads cut out of models: found, checked, and trained as the same subset of the whole graph is."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle
from edge_agent.model.head import HeadModel
from edge_agent.model.inference import InferenceModel
from edge_agent.model.training_step import TrainingStep
from edge_agent.wire.tensors import Weights
from server_bridge.bundles.build import BuildSettings, build_bundle
from server_bridge.bundles.head import cut_head, last_dense_input
from tests.bundles.nets import (
    CNN2D_TRAINABLE,
    Array,
    classified,
    cnn2d,
    conv1d,
    drawn,
    initialisers,
    mlp,
    model_of,
    regression,
    save_npz,
)

OPTIMISERS = ("sgd", "momentum", "adam", "adamw")


def built(path: Path, model: onnx.ModelProto, subset: Sequence[str], **settings: object) -> Bundle:
    data = save_npz(path / "c.npz", **classified(model, 100))
    chosen: dict[str, object] = {"trainable": ["*"], "loss": "cross-entropy", "head": True, **settings}
    return build_bundle(model, data, BuildSettings(**chosen, subsets={"part": subset}), path / "bundle")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "embedding"), [(mlp(), "r"), (mlp(last="Softmax"), "r"), (conv1d(), "r3"), (cnn2d(), "f")]
)
def test_the_embedding_is_what_the_last_dense_layer_reads(model: onnx.ModelProto, embedding: str) -> None:
    assert last_dense_input(model) == embedding


def test_weights_on_the_way_and_attention_are_no_dense_layers() -> None:
    """A MatMul of two live values has no weights; a Gemm of weights only is none of the data's."""
    weights = drawn(np.random.default_rng(0), a=(4, 4), b=(4, 4), c=(4, 3))
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["q"]),
        helper.make_node("MatMul", ["q", "c"], ["d"]),
        helper.make_node("Transpose", ["q"], ["k"], perm=[1, 0]),
        helper.make_node("MatMul", ["q", "k"], ["s"]),
        helper.make_node("MatMul", ["s", "d"], ["y"]),
    ]
    model = model_of(nodes, {name: weights[name] for name in "ac"}, shape=[4], output=[3])
    assert last_dense_input(model) == "q"


@pytest.mark.parametrize(
    ("model", "subset", "trainable"),
    [
        (conv1d(), ["d.*"], ["*"]),
        (cnn2d(), ["c.*"], CNN2D_TRAINABLE),
        (mlp(last="Softmax", opset=13), ["b.*"], ["*"]),
    ],
)
def test_training_the_head_is_training_that_subset_of_the_whole(
    tmp_path: Path, model: onnx.ModelProto, subset: list[str], trainable: list[str]
) -> None:
    bundle = built(tmp_path, model, subset, trainable=trainable)
    head = bundle.manifest.head
    assert head is not None
    base = bundle.initial_weights()
    data = classified(model, 96, seed=8)
    embeddings = InferenceModel(bundle, base).run({"x": data["x"]}, [head.embedding])
    for optimiser in OPTIMISERS:
        steps = [TrainingStep(bundle, f"{name}-{optimiser}", base) for name in ("part", "head")]
        assert steps[0].spec.trainable == steps[1].spec.trainable
        for start in (*range(0, 96, 16), *range(0, 96, 16)):
            rows = slice(start, start + 16)
            feeds = ({"x": data["x"][rows]}, {name: value[rows] for name, value in embeddings.items()})
            losses = [
                step.step(feed, data["label"][rows], learning_rate=0.05)
                for step, feed in zip(steps, feeds, strict=True)
            ]
            assert losses[0] == pytest.approx(losses[1], rel=1e-6)
        whole, part = steps[0].weights(), steps[1].weights()
        moved = np.sqrt(sum(np.square(whole[name] - base[name], dtype=np.float64).sum() for name in base))
        apart = np.sqrt(sum(np.square(whole[name] - part[name], dtype=np.float64).sum() for name in base))
        assert moved > 0.01
        assert apart <= 1e-5 * moved, (optimiser, apart / moved)


def test_the_head_predicts_what_the_whole_does_under_any_weights(tmp_path: Path) -> None:
    model = conv1d()
    bundle = built(tmp_path, model, ["d.*"])
    x = classified(model, 20)["x"]
    for weights in (bundle.initial_weights(), scaled(bundle.initial_weights(), 1.5)):
        outputs = InferenceModel(bundle, weights).run({"x": x})
        predicted = HeadModel(bundle, weights).run({"r3": outputs["r3"]})
        np.testing.assert_allclose(predicted["y"], outputs["y"], rtol=1e-6, atol=1e-6)
        assert list(InferenceModel(bundle, weights).run({"x": x}, ["y"])) == ["y"]


def scaled(weights: Weights, factor: float) -> Weights:
    return {name: (tensor * np.float32(factor)).astype(np.float32) for name, tensor in weights.items()}


def test_a_head_may_begin_further_down(tmp_path: Path) -> None:
    bundle = built(tmp_path, conv1d(), ["d.*"], embedding="f")
    assert bundle.manifest.head is not None
    assert bundle.manifest.head.trainable == ["c.w", "c.b", "d.w", "d.b"]
    assert bundle.training_graph("head-adam").embedding == "f"
    assert bundle.training_graph("head-adam").trainable == ["c.w", "c.b", "d.w", "d.b"]
    output = next(one for one in bundle.manifest.outputs if one.name == "f")
    assert (output.role, output.shape[1:]) == ("embedding", [24])


def test_an_embedding_that_is_an_output_already_stays_one(tmp_path: Path) -> None:
    model = conv1d()
    model.graph.output.append(helper.make_tensor_value_info("r3", TensorProto.FLOAT, ["n", 10]))
    bundle = built(tmp_path, model, ["d.*"])
    assert [output.name for output in bundle.manifest.outputs] == ["y", "r3"]


def around() -> onnx.ModelProto:
    """A connection from the input past the dense layer."""
    weights = drawn(np.random.default_rng(0), a=(4, 4), b=(4, 4))
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("MatMul", ["h", "b"], ["z"]),
        helper.make_node("Add", ["z", "x"], ["y"]),
    ]
    return model_of(nodes, weights, shape=[4], output=[4])


def tied() -> onnx.ModelProto:
    weights = drawn(np.random.default_rng(0), a=(4, 4))
    nodes = [helper.make_node("MatMul", ["x", "a"], ["h"]), helper.make_node("MatMul", ["h", "a"], ["y"])]
    return model_of(nodes, weights, shape=[4], output=[4])


def linear() -> onnx.ModelProto:
    weights = drawn(np.random.default_rng(0), a=(4, 4))
    return model_of([helper.make_node("MatMul", ["x", "a"], ["y"])], weights, shape=[4], output=[4])


def bare() -> onnx.ModelProto:
    return model_of([helper.make_node("Relu", ["x"], ["y"])], {}, shape=[4], output=[4])


@pytest.mark.parametrize(
    ("model", "embedding", "problem"),
    [
        (around(), None, "input 'x' by a way around 'h'"),
        (tied(), None, "tensor 'a' is used above 'h' and below it"),
        (linear(), None, "only dense layer reads its input"),
        (bare(), None, "no dense layer"),
        (conv1d(), "nothing", r"'nothing' is no value that the graph computes \(the last that it does: '.*'y'"),
        (conv1d(), "x", "'x' is no value that the graph computes"),
        (conv1d(), "y", "no trainable tensor lies above 'y'|does not depend on 'y'"),
        (conv1d(), "d.w", "is no value"),
    ],
)
def test_what_cannot_be_a_head_is_refused_by_name(model: onnx.ModelProto, embedding: str | None, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        cut_head(model, list(initialisers(model)), embedding)


def test_a_branch_that_leaves_below_the_embedding_is_a_way_around(tmp_path: Path) -> None:
    weights = drawn(np.random.default_rng(0), a=(4, 4), b=(4, 4))
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "b"], ["z"]),
        helper.make_node("Add", ["z", "h"], ["y"]),
    ]
    with pytest.raises(DataError, match="way around 'r'"):
        cut_head(model_of(nodes, weights, shape=[4], output=[4]), ["a", "b"], None)
    assert cut_head(model_of(nodes, weights, shape=[4], output=[4]), ["a", "b"], "h").trainable == ("b",)


def test_a_regression_has_a_head_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(100, 4)).astype(np.float32)
    data = save_npz(tmp_path / "c.npz", x=x, label=x.sum(axis=1))
    settings = BuildSettings(trainable=["*"], loss="mse", head=True, optimisers=["sgd"])
    bundle = build_bundle(regression(), data, settings, tmp_path / "bundle")
    assert bundle.training_graph("head-sgd").trainable == ["b.w"]
    step = TrainingStep(bundle, "head-sgd", bundle.initial_weights())
    embedding = InferenceModel(bundle, bundle.initial_weights()).run({"x": x[:8]}, ["t"])
    losses = [step.step(embedding, x[:8].sum(axis=1), learning_rate=0.05) for _ in range(5)]
    assert losses == sorted(losses, reverse=True)


def test_the_frozen_part_of_a_quantised_net_is_below_a_float_head(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    stored: dict[str, Array] = {
        "q": rng.integers(-127, 127, (4, 6)).astype(np.int8),
        "scale": np.array(0.01, np.float32),
        "zero": np.array(0, np.int8),
        "w": rng.normal(size=(6, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["a"]),
        helper.make_node("MatMul", ["x", "a"], ["h"]),
        helper.make_node("QuantizeLinear", ["h", "scale", "zero"], ["hq"]),
        helper.make_node("DequantizeLinear", ["hq", "scale", "zero"], ["hd"]),
        helper.make_node("MatMul", ["hd", "w"], ["y"]),
    ]
    model = model_of(nodes, stored, shape=[4], output=[3])
    data = save_npz(tmp_path / "c.npz", **classified(model, 100))
    settings = BuildSettings(trainable=["w"], loss="cross-entropy", head=True, optimisers=["sgd"])
    bundle = build_bundle(model, data, settings, tmp_path / "bundle")
    assert bundle.manifest.head is not None
    assert bundle.manifest.head.embedding == "hd"
    head = onnx.load_model_from_string(bundle.read("head.onnx"))
    assert {tensor.name for tensor in head.graph.initializer} == {"w"}


def test_a_normalisation_in_the_head_renews_its_statistics_and_none_below_does(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    stored: dict[str, Array] = drawn(rng, a=(6, 5), b=(6, 6), c=(3, 6))
    for name in "mn":
        stored |= {f"{name}.scale": np.ones(6, np.float32), f"{name}.bias": np.zeros(6, np.float32)}
        stored |= {f"{name}.mean": np.zeros(6, np.float32), f"{name}.var": np.ones(6, np.float32)}
    norm = ["scale", "bias", "mean", "var"]
    nodes = [
        helper.make_node("Gemm", ["x", "a"], ["h"], transB=1),
        helper.make_node("BatchNormalization", ["h", *(f"m.{part}" for part in norm)], ["hn"]),
        helper.make_node("Relu", ["hn"], ["r"]),
        helper.make_node("Gemm", ["r", "b"], ["g"], transB=1),
        helper.make_node("BatchNormalization", ["g", *(f"n.{part}" for part in norm)], ["gn"]),
        helper.make_node("Gemm", ["gn", "c"], ["y"], transB=1),
    ]
    model = model_of(nodes, stored, shape=[5], output=[3])
    data = save_npz(tmp_path / "c.npz", **classified(model, 100))
    settings = BuildSettings(
        trainable=["*"], loss="cross-entropy", embedding="r", head=True, statistics="batch", optimisers=["sgd"]
    )
    bundle = build_bundle(model, data, settings, tmp_path / "bundle")
    spec = bundle.training_graph("head-sgd")
    assert set(spec.trainable) == {"b", "n.scale", "n.bias", "c"}
    assert set(spec.statistics) == {"n.mean", "n.var"}
    base = bundle.initial_weights()
    step = TrainingStep(bundle, "head-sgd", base)
    samples = classified(model, 16)
    step.step(InferenceModel(bundle, base).run({"x": samples["x"]}, ["r"]), samples["label"], learning_rate=0.1)
    after = step.weights()
    assert {name for name in base if (after[name] != base[name]).any()} == {*spec.trainable, *spec.statistics}
