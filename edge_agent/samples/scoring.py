"""Losses of labelled rows as they were served; rows of different tasks may have outputs of different widths."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.losses import HUBER_DELTA, Kind, LossName, sample_losses, sample_right
from edge_agent.samples.record import LabelledRow


def row_losses(loss: LossName, rows: Sequence[LabelledRow], *, delta: float = HUBER_DELTA) -> NDArray[np.float64]:
    """The loss of each row, unclipped.

    Returns:
        (n,) float64, in the rows' order; see :func:`edge_agent.drift.losses.sample_losses`.

    Raises:
        DataError: a label is no class of the output beside it.
    """
    losses = np.zeros(len(rows))
    for places, outputs, labels in _alike(rows):
        losses[places] = sample_losses(loss, outputs, labels, delta=delta)
    return losses


def row_right(kind: Kind, rows: Sequence[LabelledRow]) -> NDArray[np.bool_]:
    """Whether each row's largest logit is its label; a regression is never right or wrong.

    Raises:
        DataError: as :func:`row_losses`.
    """
    right = np.zeros(len(rows), dtype=np.bool_)
    for places, outputs, labels in _alike(rows):
        right[places] = sample_right(kind, outputs, labels)
    return right


def _alike(rows: Sequence[LabelledRow]) -> Iterator[tuple[slice | list[int], NDArray[np.float32], NDArray[Any]]]:
    """Places, outputs and labels of the rows whose outputs are equally wide."""
    outputs = [row.output for row in rows]
    if len(set(map(len, outputs))) == 1:
        labels = np.array([row.label for row in rows])
        yield slice(None), np.concatenate(outputs).reshape(len(rows), -1), labels
        return
    places: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        places.setdefault(len(row.output), []).append(place)
    for chosen in places.values():
        members = [rows[place] for place in chosen]
        yield chosen, np.stack([row.output for row in members]), np.array([row.label for row in members])
