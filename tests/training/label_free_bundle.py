"""A small net fitted on Gaussian classes, with graphs that need no labels; and streams of them that shift."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.model.bundle import Bundle
from server_bridge.bundles.build import BuildSettings, build_bundle
from server_bridge.bundles.fit import FitSettings, fit_bundle
from tests.benchmarks.cohorts_data.real import dense_net

CLASSES, FEATURES = 3, 6
CENTRES = np.random.default_rng(11).normal(0, 1.6, (CLASSES, FEATURES))


def gaussian(
    count: int, seed: int, shares: NDArray[np.float64] | None = None, moved: float = 0.0
) -> tuple[dict[str, NDArray[Any]], NDArray[np.int64]]:
    """Samples of the classes; ``moved`` adds so much to every feature."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(CLASSES, count, p=shares)
    x = CENTRES[labels] + rng.normal(size=(count, FEATURES)) + moved
    return {"x": x.astype(np.float32)}, labels.astype(np.int64)


def label_free_bundle(folder: Path, *, held_rows: int = 300) -> Bundle:
    """Built, fitted, calibrated; from 800 rows on with a monitor that needs no labels."""
    folder.mkdir()
    for name, rows, seed in (("fit", 300, 0), ("held", held_rows, 1)):
        features, labels = gaussian(rows, seed)
        np.savez(folder / f"{name}.npz", x=features["x"], label=labels)
    settings = BuildSettings(
        trainable=("*.weight", "*.bias"),
        loss="cross-entropy",
        optimisers=("sgd", "adam"),
        label_free=("entropy", "pseudo-label"),
        head=True,
    )
    build_bundle(dense_net((FEATURES, 16, CLASSES), "x", 0), folder / "held.npz", settings, folder / "built")
    fitted = FitSettings(10, learning_rate=0.005)
    return fit_bundle(folder / "built", folder / "fit.npz", folder / "held.npz", fitted, folder / "bundle")
