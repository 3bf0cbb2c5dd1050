"""Rows on which a model is tried before it may serve."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import RejectedUpdate
from edge_agent.wire.manifest import TensorSpec

PROBE_ROWS = 4
LOOK_EVERY = 64

Features = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Probe:
    """Features by input name; ``live`` when they were served, else they are zeros."""

    features: Features
    rows: int
    live: bool


class RecentRows:
    """Rows of a batch served lately whose features and predictions are finite.

    Noting a batch costs the hot path next to nothing: it is looked at when rows are wanted, and every
    ``LOOK_EVERY`` batches, so that a stream that turns bad leaves good rows of not long before.
    ``note`` belongs to one thread; ``finite`` may be read from any.
    """

    def __init__(self) -> None:
        self._latest: tuple[Mapping[str, NDArray[Any]], NDArray[np.float32]] | None = None
        self._finite: Features | None = None
        self._noted = 0

    def note(self, features: Mapping[str, NDArray[Any]], outputs: NDArray[np.float32]) -> None:
        """What was served now; the arrays are not changed afterwards."""
        self._latest = features, outputs
        self._noted += 1
        if self._noted % LOOK_EVERY == 0 or self._finite is None:
            self._look()

    @property
    def finite(self) -> Features | None:
        """The newest such rows that are known; None: there are none."""
        self._look()
        return self._finite

    def _look(self) -> None:
        latest = self._latest
        if latest is None:
            return
        rows = first_rows(latest[0])
        if all_finite(rows) and np.isfinite(latest[1][:PROBE_ROWS]).all():
            self._finite = rows


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
