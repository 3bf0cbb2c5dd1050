"""What is made of a model's outputs and embeddings before they are scored."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.products import by_batch

SHARES_CAP = 64
VALUES_CAP = 64
_TINY = 1e-12
_ROUNDING = 1e-5
_LEAST_POWER = np.float32(2e-9)


def answers_of(outputs: int, classes: int | None) -> int:
    """How many answer columns outputs give."""
    if not outputs:
        return 0
    return min(outputs, VALUES_CAP) if classes is None else 2


def certainty(logits: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Margin (the largest logit less the log of the others' powers, at most 20) and energy (log of the sum of all
    powers), (n, 1) each; and the (n, classes) probabilities. One logit a sample is that of class 1 of two."""
    powers = np.array(logits.T, order="C")  # classes first: sums over a few columns are slow
    if len(powers) == 1:
        powers = np.concatenate([np.zeros_like(powers), powers])
    largest = np.maximum.reduce(powers, axis=0)
    powers -= largest
    np.exp(powers, out=powers)
    total = np.add.reduce(powers, axis=0)
    powers /= total
    energy = np.log(total)
    energy += largest
    others = np.maximum(total - 1.0, _LEAST_POWER)
    return -np.log(others)[:, None], energy[:, None], powers.T


def log_residue(
    centred: NDArray[Any], component_squares: NDArray[Any], length_squares: NDArray[Any], size: int | None = None
) -> NDArray[Any]:
    """(n, 1) log of the squared length that the components, before scaling, leave of an embedding.

    Args:
        size: rows a batch, for :func:`by_batch`; None: all are one.
    """
    whole = np.einsum("ij,ij->i", centred, centred)
    left = whole - by_batch(component_squares, length_squares, size or len(centred))
    return np.asarray(np.log(np.maximum(left, _ROUNDING * whole + _TINY))[:, None])


def unit_rows(embeddings: NDArray[Any]) -> NDArray[Any]:
    """Rows of length one; one of length zero stays zero."""
    lengths = np.sqrt(np.einsum("ij,ij->i", embeddings, embeddings))
    return np.asarray(embeddings / np.maximum(lengths, _TINY)[:, None])


def share_starts(classes: int) -> NDArray[np.int64]:
    """Where each of at most 64 stretches of neighbouring classes begins."""
    return np.linspace(0, classes, min(classes, SHARES_CAP), endpoint=False).astype(np.int64)


def value_places(outputs: int) -> NDArray[np.int64]:
    """Which values of a regression are judged: all up to 64, else 64 spread evenly."""
    return np.unique(np.linspace(0, max(0, outputs - 1), min(outputs, VALUES_CAP)).astype(np.int64))
