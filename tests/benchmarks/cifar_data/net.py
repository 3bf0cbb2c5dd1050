"""The experiment's net: two convolutions with BatchNorm and pooling, two dense layers, 545,290 parameters."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edge_agent.model.bundle import Bundle, load_bundle
from server_bridge.bundles.build import BuildSettings, build_bundle
from server_bridge.bundles.gradients.batch_statistics import Statistics
from tests.benchmarks.cifar_data.images import CLASSES, SIDE

SOURCE, LOGITS, GRAPH = "image", "logits", "momentum"
CHANNELS, HIDDEN = (3, 32, 64), 128
EPSILON = 1e-5
OPSET, IR_VERSION = 17, 9
Start = Literal["normal", "uniform"]


def build(
    folder: Path,
    images: NDArray[np.float32],
    labels: NDArray[np.int64],
    seed: int,
    statistics: Statistics,
    start: Start = "normal",
) -> Bundle:
    """A bundle with fresh weights; ``images`` give BatchNorm its statistics, and calibrate what is not used here.

    The statistics are those of the fresh weights, layer by layer, as in training mode at the first step. ``frozen``
    keeps them; with the ``batch``'s own the running ones are renewed and travel with the weights.
    """
    if (folder / "bundle").exists():
        return load_bundle(folder / "bundle")
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "calibration.npz", **{SOURCE: images, "label": labels})  # type: ignore[arg-type]  # numpy's stub mixes in a keyword
    settings = BuildSettings(
        trainable=("*.weight", "*.bias"), loss="cross-entropy", name="cifar10", statistics=statistics
    )
    return build_bundle(draw_net(images, seed, start), folder / "calibration.npz", settings, folder / "bundle")


def draw_net(images: NDArray[np.float32], seed: int, start: Start = "normal") -> onnx.ModelProto:
    """The net with fresh weights and the statistics of the given images.

    Weights are ``normal`` as He et al. 2015 have them, biases 0; or both ``uniform`` within 1 / sqrt(inputs), as
    PyTorch's layers begin: the dense weights are 2.4 times smaller then, and fewer hidden units die.
    """
    rng = np.random.default_rng([seed, 0xC1FA])
    weights = _weights(rng, start)
    for layer in (1, 2):
        probe = _model(weights, f"conv{layer}.out")
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        session = ort.InferenceSession(probe.SerializeToString(), options, providers=["CPUExecutionProvider"])
        values = np.asarray(session.run(None, {SOURCE: images})[0], np.float64)
        weights[f"norm{layer}.running_mean"] = values.mean((0, 2, 3)).astype(np.float32)
        weights[f"norm{layer}.running_var"] = values.var((0, 2, 3)).astype(np.float32)
    return _model(weights, LOGITS)


def parameters(bundle: Bundle) -> int:
    """How many values are trained."""
    return sum(int(np.prod(tensor.shape)) for tensor in bundle.manifest.trainable)


def _weights(rng: np.random.Generator, start: Start) -> dict[str, NDArray[np.float32]]:
    flat = CHANNELS[2] * (SIDE // 4) ** 2
    shapes: dict[str, Sequence[int]] = {
        "conv1": (CHANNELS[1], CHANNELS[0], 3, 3),
        "conv2": (CHANNELS[2], CHANNELS[1], 3, 3),
        "dense1": (HIDDEN, flat),
        "dense2": (CLASSES, HIDDEN),
    }
    weights = {}
    for name, shape in shapes.items():
        inputs = np.prod(shape[1:])
        if start == "normal":
            weights[f"{name}.weight"] = rng.normal(0.0, np.sqrt(2.0 / inputs), shape).astype(np.float32)
            weights[f"{name}.bias"] = np.zeros(shape[0], np.float32)
        else:
            most = 1.0 / np.sqrt(inputs)
            weights[f"{name}.weight"] = rng.uniform(-most, most, shape).astype(np.float32)
            weights[f"{name}.bias"] = rng.uniform(-most, most, shape[0]).astype(np.float32)
    for layer in (1, 2):
        ones, zeros = np.ones(CHANNELS[layer], np.float32), np.zeros(CHANNELS[layer], np.float32)
        weights |= {f"norm{layer}.weight": ones, f"norm{layer}.bias": zeros}
        weights |= {f"norm{layer}.running_mean": zeros, f"norm{layer}.running_var": ones}
    return weights


def _model(weights: dict[str, NDArray[np.float32]], output: str) -> onnx.ModelProto:
    shapes: dict[str, list[str | int]] = {
        "conv1.out": ["batch", CHANNELS[1], SIDE, SIDE],
        "conv2.out": ["batch", CHANNELS[2], SIDE // 2, SIDE // 2],
        LOGITS: ["batch", CLASSES],
    }
    nodes = [*_block(1, SOURCE), *_block(2, "conv1.pooled")]
    nodes.append(helper.make_node("Flatten", ["conv2.pooled"], ["flat"], axis=1))
    nodes.append(helper.make_node("Gemm", ["flat", "dense1.weight", "dense1.bias"], ["dense1.out"], transB=1))
    nodes.append(helper.make_node("Relu", ["dense1.out"], ["dense1.active"]))
    nodes.append(helper.make_node("Gemm", ["dense1.active", "dense2.weight", "dense2.bias"], [LOGITS], transB=1))
    last = next(number for number, node in enumerate(nodes) if output in node.output)
    kept = nodes[: last + 1]
    read = {name for node in kept for name in node.input}
    graph = helper.make_graph(
        kept,
        "cifar-net",
        [helper.make_tensor_value_info(SOURCE, TensorProto.FLOAT, ["batch", CHANNELS[0], SIDE, SIDE])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, shapes[output])],
        [numpy_helper.from_array(array, name) for name, array in weights.items() if name in read],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model, full_check=True)
    return model


def _block(layer: int, source: str) -> list[onnx.NodeProto]:
    """Convolution 3 x 3, BatchNorm, Relu, pooling 2."""
    conv, norm = f"conv{layer}", f"norm{layer}"
    statistics = [f"{norm}.{part}" for part in ("weight", "bias", "running_mean", "running_var")]
    return [
        helper.make_node(
            "Conv", [source, f"{conv}.weight", f"{conv}.bias"], [f"{conv}.out"], kernel_shape=[3, 3], pads=[1] * 4
        ),
        helper.make_node("BatchNormalization", [f"{conv}.out", *statistics], [f"{norm}.out"], epsilon=EPSILON),
        helper.make_node("Relu", [f"{norm}.out"], [f"{conv}.active"]),
        helper.make_node("MaxPool", [f"{conv}.active"], [f"{conv}.pooled"], kernel_shape=[2, 2], strides=[2, 2]),
    ]
