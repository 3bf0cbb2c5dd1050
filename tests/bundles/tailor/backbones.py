"""Backbones that are tailored in tests, and data of two tasks for them."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from edge_agent.model.bundle import Bundle
from edge_agent.wire.manifest import OptimiserName
from server_bridge.bundles.tailor.build import TailorSettings, tailor_bundle
from tests.bundles.nets import classified, drawn, model_of, save_npz

Array = NDArray[Any]
TASKS: dict[str, int | None] = {"press": None, "weld": 3}
OPTIMISERS: tuple[OptimiserName, ...] = ("sgd", "adam")


def residual(*, side: int = 8, classes: int = 4) -> onnx.ModelProto:
    """A stem, a residual block that halves the image, one that does not, a mean over places, a head."""
    shapes: dict[str, tuple[int, ...]] = {
        "s_w": (4, 2, 3, 3),
        "a1_w": (6, 4, 3, 3),
        "a2_w": (6, 6, 3, 3),
        "as_w": (6, 4, 1, 1),
        "b1_w": (6, 6, 3, 3),
        "b2_w": (6, 6, 3, 3),
        "h_w": (classes, 6),
        "h_b": (classes,),
    }
    weights = drawn(np.random.default_rng(8), **shapes)
    around: list[int] = [1, 1, 1, 1]
    nodes = [
        helper.make_node("Conv", ["x", "s.w"], ["s1"], pads=around),
        helper.make_node("Relu", ["s1"], ["s"]),
        helper.make_node("Conv", ["s", "a1.w"], ["a1"], pads=around, strides=[2, 2]),
        helper.make_node("Relu", ["a1"], ["a2"]),
        helper.make_node("Conv", ["a2", "a2.w"], ["a3"], pads=around),
        helper.make_node("Conv", ["s", "as.w"], ["a4"], strides=[2, 2]),
        helper.make_node("Add", ["a3", "a4"], ["a5"]),
        helper.make_node("Relu", ["a5"], ["a"]),
        helper.make_node("Conv", ["a", "b1.w"], ["b1"], pads=around),
        helper.make_node("Relu", ["b1"], ["b2"]),
        helper.make_node("Conv", ["b2", "b2.w"], ["b3"], pads=around),
        helper.make_node("Add", ["b3", "a"], ["b4"]),
        helper.make_node("Relu", ["b4"], ["b"]),
        helper.make_node("GlobalAveragePool", ["b"], ["m"]),
        helper.make_node("Flatten", ["m"], ["f"]),
        helper.make_node("Gemm", ["f", "h.w", "h.b"], ["y"], transB=1),
    ]
    return model_of(nodes, weights, shape=[2, side, side], output=[classes])


def two_tasks(model: onnx.ModelProto, rows: int, *, seed: int = 5) -> dict[str, Array]:
    """Rows of ``press`` (the model's classes) and ``weld`` (three of them, numbered otherwise), in turn."""
    data = classified(model, rows, seed=seed)
    task = np.where(np.arange(rows) % 2, "weld", "press")
    data["label"] = np.where(task == "weld", (data["label"] + 1) % 3, data["label"])
    return data | {"task": task}


def tailored_bundle(folder: Path, model: onnx.ModelProto, *, previous: int = 3, name: str = "tailored") -> Bundle:
    """A bundle of the two tasks."""
    data = save_npz(folder / f"{name}.npz", **two_tasks(model, 240, seed=9))
    settings = TailorSettings(TASKS, previous=previous, name=name, optimisers=OPTIMISERS)
    return tailor_bundle(model, data, settings, folder / name)
