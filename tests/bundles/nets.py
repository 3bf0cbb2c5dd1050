"""Small models, drawn node by node, and data for them."""

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Array = NDArray[Any]


def model_of(
    nodes: Sequence[onnx.NodeProto],
    initialisers: Mapping[str, Array],
    *,
    shape: Sequence[int],
    output: Sequence[int] | None,
    opset: int = 17,
    batch: int | str | None = "n",
    input_type: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """A model from ``x`` (batch, *shape) to ``y`` (batch, *output)."""
    result = None if output is None else [batch, *output]
    graph = helper.make_graph(
        list(nodes),
        "net",
        [helper.make_tensor_value_info("x", input_type, [batch, *shape])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)],
        [numpy_helper.from_array(np.asarray(value, order="C"), name) for name, value in initialisers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def drawn(rng: np.random.Generator, **shapes: tuple[int, ...]) -> dict[str, Array]:
    """Normal weights, scaled by the fan-in."""
    return {
        name.replace("_", "."): (rng.normal(size=shape) / np.sqrt(prod(shape[1:]))).astype(np.float32)
        for name, shape in shapes.items()
    }


def mlp(*, opset: int = 17, inputs: int = 5, classes: int = 3, last: str = "") -> onnx.ModelProto:
    """Two dense layers by MatMul and Gemm; ``last`` may be Softmax or LogSoftmax."""
    weights = drawn(np.random.default_rng(1), a_w=(inputs, 8), a_b=(8,), b_w=(classes, 8), b_b=(classes,))
    logits = "z" if last else "y"
    nodes = [
        helper.make_node("MatMul", ["x", "a.w"], ["m"], name="first"),
        helper.make_node("Add", ["m", "a.b"], ["p"]),
        helper.make_node("Relu", ["p"], ["r"]),
        helper.make_node("Gemm", ["r", "b.w", "b.b"], [logits], name="second", transB=1),
    ]
    if last:
        nodes.append(helper.make_node(last, ["z"], ["y"], axis=1))
    return model_of(nodes, weights, shape=[inputs], output=[classes], opset=opset)


def regression() -> onnx.ModelProto:
    """A dense net with a single tanh layer and one value."""
    weights = drawn(np.random.default_rng(2), a_w=(4, 6), a_b=(6,), b_w=(6, 1))
    nodes = [
        helper.make_node("Gemm", ["x", "a.w", "a.b"], ["g"]),
        helper.make_node("Tanh", ["g"], ["t"]),
        helper.make_node("MatMul", ["t", "b.w"], ["y"]),
    ]
    return model_of(nodes, weights, shape=[4], output=[1])


def conv1d(*, channels: int = 3, length: int = 30, classes: int = 4) -> onnx.ModelProto:
    """The demo's kind of net: strided convolutions, pooling, two dense layers."""
    weights = drawn(
        np.random.default_rng(3),
        a_w=(6, channels, 5),
        a_b=(6,),
        b_w=(8, 6, 3),
        b_b=(8,),
        c_w=(24, 10),
        c_b=(10,),
        d_w=(10, classes),
        d_b=(classes,),
    )
    nodes = [
        helper.make_node("Conv", ["x", "a.w", "a.b"], ["c1"], strides=[2]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "b.w", "b.b"], ["c2"], strides=[2], pads=[1, 1]),
        helper.make_node("Relu", ["c2"], ["r2"]),
        helper.make_node("MaxPool", ["r2"], ["p"], kernel_shape=[2], strides=[2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "c.w", "c.b"], ["g"]),
        helper.make_node("Relu", ["g"], ["r3"]),
        helper.make_node("Gemm", ["r3", "d.w", "d.b"], ["y"]),
    ]
    return model_of(nodes, weights, shape=[channels, length], output=[classes])


def cnn2d() -> onnx.ModelProto:
    """Padded and strided convolutions with batch normalisation, overlapping pooling, a global mean."""
    rng = np.random.default_rng(4)
    weights = drawn(rng, a_w=(4, 2, 3, 3), b_w=(6, 4, 3, 3), b_b=(6,), c_w=(5, 6), c_b=(5,))
    weights |= {"n.scale": rng.uniform(0.5, 1.5, 4).astype("f4"), "n.bias": rng.normal(size=4).astype("f4")}
    weights |= {"n.mean": rng.normal(size=4).astype("f4"), "n.var": rng.uniform(0.5, 2, 4).astype("f4")}
    nodes = [
        helper.make_node("Conv", ["x", "a.w"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c1", "n.scale", "n.bias", "n.mean", "n.var"], ["n1"], epsilon=1e-3),
        helper.make_node("Relu", ["n1"], ["r1"]),
        helper.make_node("MaxPool", ["r1"], ["p1"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["p1", "b.w", "b.b"], ["c2"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["c2"], ["s"]),
        helper.make_node("GlobalAveragePool", ["s"], ["m"]),
        helper.make_node("Flatten", ["m"], ["f"]),
        helper.make_node("Gemm", ["f", "c.w", "c.b"], ["y"], transB=1),
    ]
    return model_of(nodes, weights, shape=[2, 9, 8], output=[5])


CNN2D_TRAINABLE = ["a.w", "n.scale", "n.bias", "b.w", "b.b", "c.w", "c.b"]


def initialisers(model: onnx.ModelProto) -> dict[str, Array]:
    """A model's tensors by name."""
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def classified(model: onnx.ModelProto, rows: int, *, seed: int = 5) -> dict[str, Array]:
    """Data whose label can be learned: the class shifts the input."""
    rng = np.random.default_rng(seed)
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim][1:]
    classes = model.graph.output[0].type.tensor_type.shape.dim[1].dim_value
    label = rng.integers(0, classes, rows)
    centres = np.random.default_rng(99).normal(size=(classes, *shape))
    return {"x": (centres[label] + rng.normal(size=(rows, *shape))).astype(np.float32), "label": label}


def save_npz(path: Path, **arrays: Array) -> Path:
    """Write an NPZ file and give its path."""
    np.savez(path, allow_pickle=False, **arrays)
    return path
