"""The drift monitor of a bundle, calibrated on held-out data."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.calibration import calibrate_loss_rise
from edge_agent.drift.losses import sample_losses, sample_right
from edge_agent.errors import DataError
from edge_agent.wire.manifest import Manifest, MonitorSpec
from server_bridge.bundles.data import LabelledData

MONITOR = "loss-rise"
BATCH_SIZE_DEFAULT = 32
"""Labelled samples a monitor batch."""
_INFERENCE_BATCH = 256

_FREE_BATCH = "export the model with a free batch size; a Reshape to a fixed one is the usual cause"

Outputs = Callable[[dict[str, NDArray[Any]]], NDArray[Any]]
"""Features to the primary output."""


@dataclass(frozen=True)
class Score:
    """How weights do on data: the mean loss, and the share that is right (None for a regression)."""

    loss: float
    accuracy: float | None


def outputs_on(model: Outputs, data: LabelledData) -> NDArray[Any]:
    """The primary output on all rows; the first row goes alone, so that two batch sizes are tried.

    Raises:
        DataError: the output's batch is not the input's: a batch size is fixed inside the graph.
    """
    borders = [0, *range(1, len(data), _INFERENCE_BATCH), len(data)]
    parts = [_outputs(model, data.rows(np.arange(start, stop))) for start, stop in pairwise(borders)]
    return np.concatenate(parts)


def _outputs(model: Outputs, rows: LabelledData) -> NDArray[Any]:
    try:
        outputs = model(rows.features)
    except DataError as error:
        raise DataError(f"a batch of {len(rows)}: {error.problem}", error.hint or _FREE_BATCH) from error
    if len(outputs) != len(rows):
        raise DataError(f"a batch of {len(rows)} gives {len(outputs)} outputs", _FREE_BATCH)
    return outputs


def score(manifest: Manifest, outputs: NDArray[Any], labels: NDArray[Any]) -> Score:
    """Mean loss and accuracy of outputs."""
    losses = sample_losses(manifest.loss, outputs, labels, delta=manifest.huber_delta)
    right = sample_right(manifest.kind, outputs, labels)
    return Score(float(losses.mean()), float(right.mean()) if manifest.kind == "classification" else None)


def calibrated_monitors(
    manifest: Manifest, outputs: NDArray[Any], labels: NDArray[Any], *, batch_size: int, seed: int
) -> dict[str, MonitorSpec]:
    """The manifest's ``monitors`` for weights with these outputs on held-out data.

    Raises:
        DataError: too few rows, or losses that say nothing.
    """
    losses = sample_losses(manifest.loss, outputs, labels, delta=manifest.huber_delta)
    rng = np.random.default_rng(seed)
    return {MONITOR: calibrate_loss_rise(losses, batch_size=batch_size, classes=manifest.classes, rng=rng)}
