"""Weights from outside the graph: exact, complete, refused by name."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.model.session import Session
from edge_agent.wire.tensors import Weights
from tests.bundles.nets import classified, conv1d, mlp
from tests.training.tiny_bundle import tiny_bundle


def moved(weights: Weights, seed: int) -> Weights:
    rng = np.random.default_rng(seed)
    return {name: (value + rng.normal(size=value.shape)).astype(np.float32) for name, value in weights.items()}


def baked(model: onnx.ModelProto, weights: Weights) -> Session:
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    for tensor in copied.graph.initializer:
        if tensor.name in weights:
            tensor.CopyFrom(numpy_helper.from_array(weights[tensor.name], tensor.name))
    return Session("baked", copied.SerializeToString(), {}, threads=1)


@pytest.mark.parametrize(("fixture", "model"), [("bundle", mlp()), ("conv_bundle", conv1d())])
def test_swapped_weights_are_bit_for_bit_those_of_a_baked_graph(
    fixture: str, model: onnx.ModelProto, request: pytest.FixtureRequest
) -> None:
    bundle: Bundle = request.getfixturevalue(fixture)
    x = classified(model, 33)["x"]
    before = InferenceModel(bundle, bundle.initial_weights())
    outputs = before.run({"x": x})[before.primary]
    for seed in range(3):
        weights = moved(bundle.initial_weights(), seed)
        swapped = InferenceModel(bundle, weights).run({"x": x})["y"]
        assert swapped.tobytes() == baked(model, weights).run({"x": x})["y"].tobytes()
        assert not np.array_equal(swapped, outputs)
    assert before.run({"x": x})["y"].tobytes() == outputs.tobytes()


def test_model_keeps_its_weights_when_the_callers_array_changes(bundle: Bundle) -> None:
    weights = bundle.initial_weights()
    model = InferenceModel(bundle, weights)
    x = classified(mlp(), 4)["x"]
    outputs = model.run({"x": x})["y"]
    for value in weights.values():
        value += 1
    assert np.array_equal(model.run({"x": x})["y"], outputs)


def _without(weights: Weights) -> Any:
    return {name: value for name, value in weights.items() if name != "b.w"}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_without, "missing tensor 'b.w'"),
        (lambda w: w | {"odd": w["b.w"]}, "extra tensor 'odd'"),
        (lambda w: w | {"b.w": w["b.w"].T}, r"tensor 'b.w' has shape \[8, 3\], \[3, 8\] is needed"),
        (lambda w: w | {"b.w": w["b.w"].astype("f8")}, "tensor 'b.w' is float64, float32 is needed"),
        (lambda w: w | {"b.b": np.array([0, np.nan, 0], dtype="f4")}, "tensor 'b.b' is not finite"),
        (lambda w: w | {"b.b": np.array([0, np.inf, 0], dtype="f4")}, "tensor 'b.b' is not finite"),
    ],
)
def test_unfit_weights_are_refused_by_name(bundle: Bundle, change: Callable[[Weights], Weights], problem: str) -> None:
    with pytest.raises(DataError, match=f"bundle 'mlp': weights: {problem}"):
        InferenceModel(bundle, change(bundle.initial_weights()))


@pytest.mark.parametrize(
    ("features", "problem"),
    [
        ({}, "input 'x' is missing"),
        ({"x": np.zeros((2, 5), "f4"), "z": np.zeros(2, "f4")}, "input 'z' is unknown"),
        ({"x": np.zeros((2, 5), "f8")}, "input 'x' is float64, float32 is needed"),
        ({"x": np.zeros((2, 6), "f4")}, r"input 'x' has shape \[2, 6\], \['n', 5\] is needed"),
        ({"x": np.zeros(5, "f4")}, r"input 'x' has shape \[5\]"),
        ({"x": np.zeros((), "f4")}, r"input 'x' has shape \[\]"),
    ],
)
def test_unfit_features_are_refused_by_name(bundle: Bundle, features: dict[str, Any], problem: str) -> None:
    model = InferenceModel(bundle, bundle.initial_weights())
    with pytest.raises(DataError, match=problem):
        model.run(features)


def test_empty_batch_gives_empty_outputs(bundle: Bundle) -> None:
    model = InferenceModel(bundle, bundle.initial_weights())
    assert model.run({"x": np.zeros((0, 5), "f4")})["y"].shape == (0, 3)


def test_graph_that_is_not_onnx_is_named() -> None:
    with pytest.raises(DataError, match=r"infer.onnx is refused by onnxruntime"):
        Session("infer.onnx", b"not a graph", {}, threads=1)


def test_a_graph_whose_names_are_no_text_is_refused_as_data(tmp_path: Path) -> None:
    graph = (tiny_bundle(tmp_path / "bundle").path / "train" / "sgd.onnx").read_bytes()
    for name in (b"loss", b"Softmax"):
        with pytest.raises(DataError, match=r"train/sgd\.onnx"):
            Session("train/sgd.onnx", graph.replace(name, b"\xe5" + name[1:], 1), {}, threads=1)


def test_an_output_that_the_graph_does_not_have_is_named(bundle: Bundle) -> None:
    other = bundle.manifest.outputs[0].model_copy(update={"name": "scores"})
    changed = replace(bundle, manifest=bundle.manifest.model_copy(update={"outputs": [other]}))
    with pytest.raises(DataError, match=r"infer.onnx has no output 'scores'"):
        InferenceModel(changed, bundle.initial_weights())
