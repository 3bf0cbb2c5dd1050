"""The nets that adapt, and a way to run one under weights that change at every step."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edge_agent.model.bundle import Bundle
from edge_agent.model.inference import INFERENCE_GRAPH
from edge_agent.model.session import Session
from edge_agent.wire.tensors import Weights
from tests.benchmarks.cohorts_data.real import dense_net

SOURCE = "x"
CHANNELS, SIDE, CLASSES = 3, 16, 10
__all__ = ["SOURCE", "Live", "dense_net", "small_cnn"]


def small_cnn(seed: int) -> onnx.ModelProto:
    """Two strided convolutions, each batch normalised, and two dense layers over 16 x 16 colour images."""
    rng = np.random.default_rng(seed)
    shapes = {
        "conv1.weight": (16, CHANNELS, 3, 3),
        "conv2.weight": (32, 16, 3, 3),
        "dense1.weight": (64, 512),
        "dense1.bias": (64,),
        "dense2.weight": (CLASSES, 64),
        "dense2.bias": (CLASSES,),
    }
    tensors = [numpy_helper.from_array(_drawn(shape, rng), name) for name, shape in shapes.items()]
    for norm, channels in (("norm1", 16), ("norm2", 32)):
        for name, value in (("weight", 1), ("bias", 0), ("mean", 0), ("variance", 1)):
            tensors.append(numpy_helper.from_array(np.full(channels, value, np.float32), f"{norm}.{name}"))
    conv: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("Conv", [SOURCE, "conv1.weight"], ["a"], **conv),
        helper.make_node("BatchNormalization", ["a", *_norm("norm1")], ["a.normed"]),
        helper.make_node("Relu", ["a.normed"], ["b"]),
        helper.make_node("Conv", ["b", "conv2.weight"], ["c"], **conv),
        helper.make_node("BatchNormalization", ["c", *_norm("norm2")], ["c.normed"]),
        helper.make_node("Relu", ["c.normed"], ["d"]),
        helper.make_node("Flatten", ["d"], ["e"]),
        helper.make_node("Gemm", ["e", "dense1.weight", "dense1.bias"], ["f"], transB=1),
        helper.make_node("Relu", ["f"], ["g"]),
        helper.make_node("Gemm", ["g", "dense2.weight", "dense2.bias"], ["logits"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "small-cnn",
        [helper.make_tensor_value_info(SOURCE, TensorProto.FLOAT, ["batch", CHANNELS, SIDE, SIDE])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


class Live:
    """A bundle's inference graph whose weights are inputs: no session is made where they change.

    Args:
        bundle: its outputs of role logits and embedding are given.
    """

    def __init__(self, bundle: Bundle) -> None:
        model = onnx.load_from_string(bundle.read(INFERENCE_GRAPH))
        shapes = {spec.name: spec.shape for spec in bundle.manifest.trainable}
        kept = [tensor for tensor in model.graph.initializer if tensor.name not in shapes]
        del model.graph.initializer[:]
        model.graph.initializer.extend(kept)
        model.graph.input.extend(
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()
        )
        self.primary = "logits"
        self._session = Session("the live model", model.SerializeToString(), {}, threads=1)

    def run(self, weights: Weights, features: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Outputs by name."""
        return self._session.run({**features, **weights})


def _norm(name: str) -> list[str]:
    return [f"{name}.{part}" for part in ("weight", "bias", "mean", "variance")]


def _drawn(shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float32]:
    """He-normal weights, biases zero."""
    if len(shape) == 1:
        return np.zeros(shape, np.float32)
    return rng.normal(0, np.sqrt(2 / np.prod(shape[1:])), shape).astype(np.float32)
