"""Updates of clients as our training graph makes them, with their split halves."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edge_agent.model.bundle import Bundle, load_bundle
from edge_agent.model.training_step import TrainingStep
from edge_agent.training.local_round import minibatches
from edge_agent.training.split_half import halves
from edge_agent.wire.tensors import Weights
from server_bridge.bundles.build import BuildSettings, build_bundle
from server_bridge.bundles.fit import FitSettings, fit_bundle

Graph = Literal["adam", "momentum"]
GRAPH: Graph = "adam"


@dataclass(frozen=True, slots=True)
class Training:
    """A client's local round: passes over its data, rate, samples a step, the training graph by its optimiser."""

    epochs: int
    learning_rate: float
    batch_size: int
    graph: Graph = GRAPH


@dataclass(frozen=True, slots=True)
class Samples:
    """Labelled samples: (n, ...) float32 features and (n,) int64 classes."""

    features: NDArray[np.float32]
    labels: NDArray[np.int64]

    def take(self, rows: NDArray[np.intp]) -> "Samples":
        """The given rows, in that order."""
        return Samples(self.features[rows], self.labels[rows])


def fit_base(
    net: onnx.ModelProto, source: str, fit: Samples, calibration: Samples, settings: FitSettings, folder: Path
) -> Bundle:
    """A bundle trained on ``fit``; ``source`` is the net's input."""
    if (folder / "bundle").exists():
        return load_bundle(folder / "bundle")
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in (("fit", fit), ("calibration", calibration)):
        arrays = {source: part.features, "label": part.labels}
        np.savez(folder / f"{name}.npz", **arrays)  # type: ignore[arg-type]  # numpy's stub mixes in a keyword
    build = BuildSettings(trainable=("*.weight", "*.bias"), loss="cross-entropy")
    build_bundle(net, folder / "calibration.npz", build, folder / "untrained")
    return fit_bundle(folder / "untrained", folder / "fit.npz", folder / "calibration.npz", settings, folder / "bundle")


def update(bundle: Bundle, base: Weights, samples: Samples, training: Training, seed: int) -> NDArray[np.float32]:
    """(d,) trained minus base, all tensors in the order of their names."""
    step = TrainingStep(bundle, training.graph, base)
    source = bundle.manifest.inputs[0].name
    rng = np.random.default_rng(seed)
    for _ in range(training.epochs):
        for rows in minibatches(len(samples.labels), training.batch_size, rng):
            step.step({source: samples.features[rows]}, samples.labels[rows], learning_rate=training.learning_rate)
    trained = step.weights()
    return np.concatenate([(trained[name] - base[name]).ravel() for name in sorted(trained)])


def layers_of(base: Weights) -> list[int]:
    """The sizes of the tensors in the order in which :func:`update` gives them."""
    return [base[name].size for name in sorted(base)]


def split_half(bundle: Bundle, base: Weights, samples: Samples, training: Training, seed: int) -> float:
    """The cosine of the updates from the halves of the samples that a gateway would take."""
    left, right = (
        update(bundle, base, samples.take(rows), training, seed).astype(np.float64)
        for rows in halves(samples.labels, seed)
    )
    return float(left @ right / np.sqrt((left @ left) * (right @ right)))


def dense_net(widths: Sequence[int], source: str, seed: int) -> onnx.ModelProto:
    """A multilayer perceptron with Relu between its layers, He-normal weights, biases zero."""
    rng = np.random.default_rng(seed)
    nodes, tensors, value = [], [], source
    for layer, (fan_in, fan_out) in enumerate(pairwise(widths), 1):
        weight = rng.normal(0.0, np.sqrt(2.0 / fan_in), (fan_out, fan_in)).astype(np.float32)
        names = f"dense{layer}.weight", f"dense{layer}.bias"
        for name, array in zip(names, (weight, np.zeros(fan_out, np.float32)), strict=True):
            tensors.append(numpy_helper.from_array(array, name))
        last = layer == len(widths) - 1
        out = "logits" if last else f"dense{layer}.out"
        nodes.append(helper.make_node("Gemm", [value, *names], [out], transB=1))
        if not last:
            value = f"dense{layer}.active"
            nodes.append(helper.make_node("Relu", [out], [value]))
    graph = helper.make_graph(
        nodes,
        "dense-net",
        [helper.make_tensor_value_info(source, TensorProto.FLOAT, ["batch", widths[0]])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", widths[-1]])],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
