"""Makes a case's folder: torch's weights, the bundle built of the export, and a batch."""

from pathlib import Path

import numpy as np
import torch

from server_bridge.bundles.build import BuildSettings, build_bundle
from tests.benchmarks.step_data.cases import BATCH, Case
from tests.benchmarks.step_data.nets import INPUT, draw, export

CALIBRATION_ROWS = 200


def make(entry: Case, folder: Path, *, seed: int = 0, calibration_rows: int = CALIBRATION_ROWS) -> None:
    """Write everything that the two sides need."""
    folder.mkdir(parents=True, exist_ok=True)
    net = draw(entry, seed)
    torch.save(net.state_dict(), folder / "torch.pt")
    export(net, entry, folder / "net.onnx")
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(calibration_rows, *entry.shape)).astype(np.float32)
    labels = rng.integers(0, entry.classes, calibration_rows)
    np.savez(folder / "calibration.npz", **{INPUT: x, "label": labels})  # type: ignore[arg-type]  # numpy's stub mixes in a keyword
    np.savez(folder / "batch.npz", x=x[:BATCH], label=labels[:BATCH])
    trained = ["*", *(f"!{name}" for name, _ in net.named_buffers() if "running" in name)]
    settings = BuildSettings(trainable=tuple(trained), loss="cross-entropy", name=entry.name)
    build_bundle(folder / "net.onnx", folder / "calibration.npz", settings, folder / "bundle")
    (folder / "parameters").write_text(str(sum(p.numel() for p in net.parameters())), encoding="utf-8")
