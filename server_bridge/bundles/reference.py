"""From calibration data to the reference that monitors are calibrated with: time order, segments, names."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.feature_names import feature_names
from edge_agent.drift.losses import sample_losses
from edge_agent.drift.observed import Observed
from edge_agent.drift.reference import Reference
from edge_agent.model.inference import primary_output
from edge_agent.wire.manifest import Manifest
from server_bridge.bundles.data import LabelledData


def reference_of(manifest: Manifest, data: LabelledData, outputs: Mapping[str, NDArray[Any]]) -> Reference:
    """Held-out data in the order of its times (without times: of its rows), beside what the model makes of it.

    Args:
        data: without the holdout.
        outputs: (n, ...) each, by name: the primary output, and that of role embedding, if there is one.

    Cost: one copy of the data.
    """
    primary = outputs[primary_output(manifest)]
    embedding = next((outputs[output.name] for output in manifest.outputs if output.role == "embedding"), None)
    losses = sample_losses(manifest.loss, primary, data.labels, delta=manifest.huber_delta)
    return ordered_reference(manifest, data, losses, primary, embedding)


def ordered_reference(
    manifest: Manifest,
    data: LabelledData,
    losses: NDArray[np.float64],
    outputs: NDArray[Any],
    embeddings: NDArray[Any] | None = None,
) -> Reference:
    """The same from (n,) losses and (n, ...) outputs in the order of the data's rows."""
    order = np.arange(len(data)) if data.times is None else np.argsort(data.times, kind="stable")
    rows = data.rows(order)
    features = flattened(manifest, rows.features)
    names, units = feature_names(manifest, features.shape[1])
    observed = Observed(
        ids=[str(row) for row in order.tolist()],
        times_s=np.arange(len(rows), dtype=np.float64) if rows.times is None else rows.times,
        features=features,
        outputs=outputs[order].reshape(len(rows), -1),
        embeddings=None if embeddings is None else embeddings[order].reshape(len(rows), -1),
    )
    segments = segments_of(rows.groups, len(rows))
    return Reference(observed, losses[order], rows.labels, manifest.classes, segments, tuple(names), tuple(units))


def flattened(manifest: Manifest, features: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """(n, f): the inputs side by side in the manifest's order, each flattened; a view of the only one."""
    parts = [features[spec.name].reshape(len(features[spec.name]), -1) for spec in manifest.inputs]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def segments_of(groups: NDArray[np.int64] | None, rows: int) -> NDArray[np.int64]:
    """(n,) the number of each row's segment.

    Groups that follow one another (recordings, shifts) are a segment each. Groups that interleave came that way, and so
    will the gateway's stream: then all rows are one segment.
    """
    if groups is None or rows == 0:
        return np.zeros(rows, np.int64)
    changes = np.flatnonzero(np.diff(groups)) + 1
    if len(changes) + 1 != len(np.unique(groups)):
        return np.zeros(rows, np.int64)
    segments: NDArray[np.int64] = np.zeros(rows, np.int64)
    segments[changes] = 1
    return np.cumsum(segments)
