"""A small convolutional net: three convolutions with pooling, a dense layer, a head; 24,709 values for five classes."""

from itertools import pairwise

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edge_agent.wire.tensors import Weights
from tests.benchmarks.tailor_data.digits import SIDE

CHANNELS, HIDDEN = (1, 8, 16, 32), 64
SOURCE, LOGITS = "image", "logits"
_FLAT = CHANNELS[-1] * (SIDE // 8) ** 2


def fresh(classes: int, rng: np.random.Generator) -> Weights:
    """He-normal weights and zero biases."""
    weights: Weights = {}
    for number, (before, after) in enumerate(pairwise(CHANNELS), start=1):
        weights[f"conv{number}.weight"] = _normal(rng, (after, before, 3, 3), before * 9)
        weights[f"conv{number}.bias"] = np.zeros(after, np.float32)
    weights["dense.weight"] = _normal(rng, (_FLAT, HIDDEN), _FLAT)
    weights["dense.bias"] = np.zeros(HIDDEN, np.float32)
    return weights | head(classes, rng)


def head(classes: int, rng: np.random.Generator) -> Weights:
    """A fresh head."""
    return {"head.weight": _normal(rng, (HIDDEN, classes), HIDDEN), "head.bias": np.zeros(classes, np.float32)}


def net(weights: Weights) -> onnx.ModelProto:
    """The net under these weights."""
    nodes, value = [], SOURCE
    for number in range(1, len(CHANNELS)):
        nodes += [
            helper.make_node(
                "Conv", [value, f"conv{number}.weight", f"conv{number}.bias"], [f"c{number}"], pads=[1, 1, 1, 1]
            ),
            helper.make_node("Relu", [f"c{number}"], [f"r{number}"]),
            helper.make_node("MaxPool", [f"r{number}"], [f"p{number}"], kernel_shape=[2, 2], strides=[2, 2]),
        ]
        value = f"p{number}"
    nodes += [
        helper.make_node("Flatten", [value], ["flat"]),
        helper.make_node("Gemm", ["flat", "dense.weight", "dense.bias"], ["d"]),
        helper.make_node("Relu", ["d"], ["features"]),
        helper.make_node("Gemm", ["features", "head.weight", "head.bias"], [LOGITS]),
    ]
    classes = len(weights["head.bias"])
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info(SOURCE, TensorProto.FLOAT, ["batch", 1, SIDE, SIDE])],
        [helper.make_tensor_value_info(LOGITS, TensorProto.FLOAT, ["batch", classes])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _normal(rng: np.random.Generator, shape: tuple[int, ...], inputs: int) -> NDArray[np.float32]:
    return np.asarray(rng.normal(size=shape) * np.sqrt(2 / inputs), dtype=np.float32)
