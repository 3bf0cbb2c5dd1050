"""The demo's net: raw motion windows in, seven motions out, 26,327 trainable parameters."""

from collections.abc import Sequence

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from server_bridge.demo.data import INPUT, WINDOW

OUTPUT = "logits"
OPSET = 17
IR_VERSION = 9
AXES = 6
CHANNELS = (16, 32)
KERNELS = (7, 5)
HIDDEN = 64
TRAINABLE_PATTERNS = ("conv*", "dense*")


def draw_net(mean: NDArray[np.float32], deviation: NDArray[np.float32], *, classes: int, seed: int) -> onnx.ModelProto:
    """The net with fresh weights.

    Standardise, Conv 6-16 (7, stride 2), Relu, Conv 16-32 (5, stride 2), Relu, MaxPool 2,
    dense 64, Relu, dense to the classes. The standardisation is part of the graph and fixed:
    a gateway feeds what its sensor gives.

    Args:
        mean, deviation: (6,) float32, per axis, raw units.
        seed: of the He-normal initial weights; biases are zero.
    """
    first, second = CHANNELS
    flat = second * (_convolved(_convolved(WINDOW, KERNELS[0]), KERNELS[1]) // 2)
    rng = np.random.default_rng([seed, 0x0DE])
    initialisers = [
        _constant("input.mean", mean.reshape(1, AXES, 1)),
        _constant("input.scale", (np.float32(1) / deviation).reshape(1, AXES, 1)),
        *_layer("conv1", (first, AXES, KERNELS[0]), rng),
        *_layer("conv2", (second, first, KERNELS[1]), rng),
        *_layer("dense1", (HIDDEN, flat), rng),
        *_layer("dense2", (classes, HIDDEN), rng),
    ]
    nodes = [
        helper.make_node("Sub", [INPUT, "input.mean"], ["centred"]),
        helper.make_node("Mul", ["centred", "input.scale"], ["standardised"]),
        _conv("conv1", "standardised", "conv1.out", KERNELS[0]),
        helper.make_node("Relu", ["conv1.out"], ["conv1.active"]),
        _conv("conv2", "conv1.active", "conv2.out", KERNELS[1]),
        helper.make_node("Relu", ["conv2.out"], ["conv2.active"]),
        helper.make_node("MaxPool", ["conv2.active"], ["pooled"], kernel_shape=[2], strides=[2]),
        helper.make_node("Flatten", ["pooled"], ["flat"], axis=1),
        _dense("dense1", "flat", "dense1.out"),
        helper.make_node("Relu", ["dense1.out"], ["dense1.active"]),
        _dense("dense2", "dense1.active", OUTPUT),
    ]
    graph = helper.make_graph(
        nodes,
        "motion-net",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, ["batch", AXES, WINDOW])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, ["batch", classes])],
        initialisers,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model, full_check=True)
    return model


def trainable_parameters(model: onnx.ModelProto) -> int:
    """How many values the layers hold."""
    return sum(int(np.prod(tensor.dims)) for tensor in model.graph.initializer if not tensor.name.startswith("input."))


def _convolved(length: int, kernel: int) -> int:
    return (length - kernel) // 2 + 1


def _layer(name: str, shape: Sequence[int], rng: np.random.Generator) -> list[TensorProto]:
    fan_in = int(np.prod(shape[1:]))
    weight = rng.normal(0.0, np.sqrt(2.0 / fan_in), shape).astype(np.float32)
    return [_constant(f"{name}.weight", weight), _constant(f"{name}.bias", np.zeros(shape[0], np.float32))]


def _constant(name: str, value: NDArray[np.floating]) -> TensorProto:
    return numpy_helper.from_array(np.ascontiguousarray(value, np.float32), name)


def _conv(name: str, source: str, target: str, kernel: int) -> onnx.NodeProto:
    inputs = [source, f"{name}.weight", f"{name}.bias"]
    return helper.make_node("Conv", inputs, [target], kernel_shape=[kernel], strides=[2])


def _dense(name: str, source: str, target: str) -> onnx.NodeProto:
    return helper.make_node("Gemm", [source, f"{name}.weight", f"{name}.bias"], [target], transB=1)
