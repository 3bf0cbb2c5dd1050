"""A small bundle with all monitors, and recordings of its stream."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import helper

from edge_agent.model.bundle import Bundle
from edge_agent.wire.manifest import FeatureSpec
from server_bridge.bundles.build import BuildSettings, build_bundle
from server_bridge.bundles.rates import false_alarms_of
from server_bridge.bundles.wish import Wish
from tests.bundles.nets import model_of, save_npz

CENTRES = np.array([[2.0, 0.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0], [0.0, 0.0, 2.0, 0.0]])
NAMES = ("temperature", "pressure", "flow", "speed")
CLASSES = ("idle", "press", "jam")


def stream(rows: int, seed: int) -> dict[str, NDArray[Any]]:
    """Independent samples of three Gaussian classes; the fourth feature says nothing of them."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, rows)
    features = (CENTRES[labels] + rng.normal(size=(rows, 4))).astype(np.float32)
    return {"x": features, "label": labels}


def recorded_bundle(folder: Path) -> Bundle:
    """The best linear classifier of that stream; 1,600 rows support what is asked, so monitors may flag."""
    weights = {"w": CENTRES.astype(np.float32), "b": (-0.5 * np.square(CENTRES).sum(axis=1)).astype(np.float32)}
    net = model_of([helper.make_node("Gemm", ["x", "w", "b"], ["y"], transB=1)], weights, shape=[4], output=[3])
    settings = BuildSettings(
        ["*"],
        "cross-entropy",
        name="press",
        label_names=CLASSES,
        optimisers=("sgd",),
        wish=Wish(false_alarms_of("1 per 40 batches")),
        features=[
            FeatureSpec(name=name, unit=unit) for name, unit in zip(NAMES, ("degC", "bar", "l/s", ""), strict=True)
        ],
    )
    data = save_npz(folder / "reference.npz", **stream(1600, 1))
    return build_bundle(net, data, settings, folder / "bundle")


def save_csv(path: Path, arrays: dict[str, NDArray[Any]], **columns: NDArray[Any]) -> Path:
    """The same as a stranger's CSV: features by their names, classes in words."""
    table = {name: arrays["x"][:, place] for place, name in enumerate(NAMES)} | columns
    if "label" in arrays:
        table["label"] = np.array(CLASSES)[arrays["label"]]
    lines = [",".join(table), *(",".join(str(cell) for cell in row) for row in zip(*table.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path
