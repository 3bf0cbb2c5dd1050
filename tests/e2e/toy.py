"""A model that fits in a second and drifts in two ways: small enough to close the whole loop in a test."""

import atexit
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edge_agent.model.bundle import Bundle, load_bundle, refuse_taken
from edge_agent.wire.manifest import FeatureSpec
from server_bridge.bundles.build import BuildSettings, build_bundle
from server_bridge.bundles.fit import FitSettings, fit_bundle

FEATURES = 8
CLASSES = 4
HIDDEN = 16
PERMUTED = (3, 0, 1, 2, 7, 4, 5, 6)
NOISE = 0.6
UNTRAINED_ROWS = 64
"""The least that a monitor is calibrated on: those of the untrained net are thrown away."""


@dataclass(frozen=True, slots=True)
class Drift:
    """What a remounted sensor does to a sample."""

    name: str

    def apply(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """The features as the sensor gives them now."""
        if self.name == "permuted":
            return np.ascontiguousarray(x[:, PERMUTED])
        if self.name == "flipped":
            return -x
        return x


def draw(rng: np.random.Generator, count: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Clean samples of the toy problem: one Gaussian a class."""
    centres = np.random.default_rng(7).normal(size=(CLASSES, FEATURES)) * 1.5
    label = rng.integers(0, CLASSES, count)
    x = centres[label] + rng.normal(size=(count, FEATURES)) * NOISE
    return x.astype(np.float32), label.astype(np.int64)


def toy_net(seed: int = 0) -> onnx.ModelProto:
    """An MLP 8-16-4."""
    rng = np.random.default_rng(seed)
    tensors = {
        "w1": rng.normal(size=(FEATURES, HIDDEN)) * (2 / FEATURES) ** 0.5,
        "b1": np.zeros(HIDDEN),
        "w2": rng.normal(size=(HIDDEN, CLASSES)) * (2 / HIDDEN) ** 0.5,
        "b2": np.zeros(CLASSES),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"]),
        helper.make_node("Relu", ["h"], ["a"]),
        helper.make_node("Gemm", ["a", "w2", "b2"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "toy",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", FEATURES])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", CLASSES])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def toy_bundle(directory: Path, *, head: bool = False, personal: Sequence[str] = ()) -> Bundle:
    """The toy net, fitted on clean samples by its own training graph, and calibrated.

    Args:
        head: whether it has graphs that train its head on embeddings.
        personal: patterns of the tensors that stay on each gateway.
    """
    refuse_taken(directory / "bundle")
    shutil.copytree(_toy_folder(head, tuple(personal)), directory, dirs_exist_ok=True)
    return load_bundle(directory / "bundle")


@cache
def _toy_folder(head: bool, personal: tuple[str, ...]) -> Path:
    """Made once in a process; its data and bundle are copied from there."""
    directory = Path(tempfile.mkdtemp(prefix="toy-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    rng = np.random.default_rng(1)
    for name, count in (("train", 1200), ("calibration", 800)):
        x, label = draw(rng, count)
        np.savez(directory / f"{name}.npz", x=x, label=label)
    np.savez(directory / "few.npz", x=x[:UNTRAINED_ROWS], label=label[:UNTRAINED_ROWS])
    settings = BuildSettings(
        trainable=["w*", "b*"],
        loss="cross-entropy",
        name="toy",
        head=head,
        personal=list(personal),
        features=[FeatureSpec(name=f"axis{number}", unit="g") for number in range(FEATURES)],
    )
    build_bundle(toy_net(), directory / "few.npz", settings, directory / "raw")
    fit = FitSettings(epochs=12, learning_rate=0.01)
    fit_bundle(directory / "raw", directory / "train.npz", directory / "calibration.npz", fit, directory / "bundle")
    return directory


def write_stream(path: Path, drift: Drift, *, clean_rows: int, drifted_rows: int, seed: int) -> None:
    """What a gateway replays: clean rows once, then drifted rows; every tenth is holdout, labels are late."""
    rng = np.random.default_rng(seed)
    x, label = draw(rng, clean_rows + drifted_rows)
    x[clean_rows:] = drift.apply(x[clean_rows:])
    rows = np.arange(len(x))
    np.savez(
        path,
        x=x,
        label=label,
        holdout=rows % 10 == 0,
        delay=rng.uniform(0.05, 0.3, len(x)).astype(np.float32),
    )
