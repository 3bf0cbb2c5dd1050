"""Rows on which a model is tried before it may serve."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import RejectedUpdate
from edge_agent.wire.manifest import TensorSpec

PROBE_ROWS = 4

Features = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Probe:
    """Features by input name; ``live`` when they were served, else they are zeros."""

    features: Features
    rows: int
    live: bool


def first_rows(features: Mapping[str, NDArray[Any]]) -> Features:
    """A copy of a batch's first rows."""
    return {name: array[:PROBE_ROWS].copy() for name, array in features.items()}


def all_finite(arrays: Mapping[str, NDArray[Any]]) -> bool:
    """Whether no array holds a NaN or an infinity; integers are finite."""
    return all(array.dtype.kind != "f" or bool(np.isfinite(array).all()) for array in arrays.values())


def probe_features(inputs: Sequence[TensorSpec], recent: Features | None) -> Probe | None:
    """The rows to try a model with.

    Args:
        inputs: the model's inputs.
        recent: rows served lately, if any.

    Returns:
        Those rows where they fit the inputs, else zeros; None where an input has a free
        dimension besides the batch and nothing has been served yet, so that no size is known.
    """
    if recent is not None and _fit(inputs, recent):
        return Probe(recent, len(next(iter(recent.values()))), live=True)
    zeros: Features = {}
    for spec in inputs:
        sizes = [size for size in spec.shape[1:] if isinstance(size, int)]
        if len(sizes) != len(spec.shape) - 1:
            return None
        zeros[spec.name] = np.zeros([PROBE_ROWS, *sizes], dtype=spec.dtype)
    return Probe(zeros, PROBE_ROWS, live=False)


def check_predictions(outputs: NDArray[np.float32], probe: Probe) -> None:
    """Refuse a model whose predictions for the probe cannot be right.

    Raises:
        RejectedUpdate: ``unfit``: not a row a sample, or not finite for rows that were served.
    """
    if outputs.ndim == 0 or outputs.shape[0] != probe.rows:
        raise RejectedUpdate("unfit", f"predictions for {probe.rows} rows have shape {list(outputs.shape)}")
    if probe.live and not np.isfinite(outputs).all():
        raise RejectedUpdate("unfit", "predictions for rows that were served are not finite")


def _fit(inputs: Sequence[TensorSpec], features: Features) -> bool:
    return {spec.name for spec in inputs} == set(features) and all(_fits(spec, features[spec.name]) for spec in inputs)


def _fits(spec: TensorSpec, array: NDArray[Any]) -> bool:
    if array.dtype != np.dtype(spec.dtype) or array.ndim != len(spec.shape) or len(array) == 0:
        return False
    pairs = zip(spec.shape[1:], array.shape[1:], strict=True)
    return all(not isinstance(wanted, int) or wanted == given for wanted, given in pairs)
