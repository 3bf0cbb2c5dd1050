"""What a model makes of held-out data, and how well."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.losses import sample_losses, sample_right
from edge_agent.errors import DataError
from edge_agent.model.inference import primary_output
from edge_agent.wire.manifest import Manifest
from server_bridge.bundles.data import LabelledData

BATCH_SIZE_DEFAULT = 32
"""Labelled samples a monitor batch."""
_INFERENCE_BATCH = 256

_FREE_BATCH = "export the model with a free batch size; a Reshape to a fixed one is the usual cause"

Outputs = Callable[[dict[str, NDArray[Any]]], NDArray[Any]]
"""Features to the primary output."""
Run = Callable[[Mapping[str, NDArray[Any]]], Mapping[str, NDArray[Any]]]
"""Features to all outputs by name."""


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
    parts = [_outputs(lambda features: {"": model(dict(features))}, rows, [""]) for rows in _batches(data)]
    return np.concatenate([part[""] for part in parts])


def judged_outputs(manifest: Manifest, run: Run, data: LabelledData) -> dict[str, NDArray[Any]]:
    """The outputs that monitors judge, on all rows: the primary one and that of role embedding, by name.

    Raises:
        DataError: as :func:`outputs_on`.
    """
    embeddings = [output.name for output in manifest.outputs if output.role == "embedding"]
    names = [primary_output(manifest), *embeddings[:1]]
    parts = [_outputs(run, rows, names) for rows in _batches(data)]
    return {name: np.concatenate([part[name] for part in parts]) for name in names}


def _batches(data: LabelledData) -> Iterator[LabelledData]:
    borders = [0, *range(1, len(data), _INFERENCE_BATCH), len(data)]
    for start, stop in pairwise(borders):
        yield data.rows(np.arange(start, stop))


def _outputs(run: Run, rows: LabelledData, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    try:
        given = run(rows.features)
    except DataError as error:
        raise DataError(f"a batch of {len(rows)}: {error.problem}", error.hint or _FREE_BATCH) from error
    for name in names:
        if len(given[name]) != len(rows):
            raise DataError(f"a batch of {len(rows)} gives {len(given[name])} outputs", _FREE_BATCH)
    return {name: given[name] for name in names}


def score(manifest: Manifest, outputs: NDArray[Any], labels: NDArray[Any]) -> Score:
    """Mean loss and accuracy of outputs."""
    losses = sample_losses(manifest.loss, outputs, labels, delta=manifest.huber_delta)
    right = sample_right(manifest.kind, outputs, labels)
    return Score(float(losses.mean()), float(right.mean()) if manifest.kind == "classification" else None)
