"""Per-sample losses of a model's primary output."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import DataError

LossName = Literal["cross-entropy", "mse"]
Kind = Literal["classification", "regression"]


def sample_losses(loss: LossName, output: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.float64]:
    """The loss of each sample, unclipped.

    Args:
        loss: ``cross-entropy`` of logits, or ``mse``.
        output: (n, classes) logits, or (n,) or (n, 1) values; may hold non-finite numbers.
        labels: (n,) class numbers 0..classes-1 (integers, or floats that are whole), or target values.

    Returns:
        (n,) float64, >= 0; ``inf`` where the output of the sample is not finite.

    Raises:
        DataError: shapes that do not fit, or a label that is no class or not finite.

    Cost:
        O(n classes); no sample gives an empty array.
    """
    if loss == "cross-entropy":
        return _cross_entropy(output, labels)
    return _squared_error(output, labels)


def sample_right(kind: Kind, output: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether the largest logit is the labelled class.

    Args:
        kind: a regression is never right or wrong: all False.
        output: (n, classes) logits, or values.
        labels: (n,) class numbers, or target values.

    Returns:
        (n,) bool; False where the output of the sample is not finite.

    Raises:
        DataError: as :func:`sample_losses`.
    """
    if kind == "regression":
        return np.zeros(len(labels), dtype=np.bool_)
    chosen = _class_numbers(output, labels)
    right: NDArray[np.bool_] = (output.argmax(axis=1) == chosen) & np.isfinite(output).all(axis=1)
    return right


def _cross_entropy(output: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.float64]:
    chosen = _class_numbers(output, labels)
    finite = np.isfinite(output).all(axis=1)
    logits = np.where(finite[:, None], output, 0.0).astype(np.float64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(chosen)), chosen]
    return np.where(finite, np.maximum(losses, 0.0), np.inf)


def _squared_error(output: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.float64]:
    if output.shape not in ((len(labels),), (len(labels), 1)) or labels.ndim != 1:
        raise DataError(f"output {output.shape} and labels {labels.shape} do not fit: one value a sample is needed")
    targets = labels.astype(np.float64)
    if not np.isfinite(targets).all():
        raise DataError("a label is not finite")
    values = output.reshape(-1).astype(np.float64)
    finite = np.isfinite(values)
    with np.errstate(over="ignore"):
        squared = np.square(np.where(finite, values, 0.0) - targets)
    return np.where(finite, squared, np.inf)


def _class_numbers(output: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.int64]:
    if output.ndim != 2 or labels.ndim != 1 or len(output) != len(labels) or output.shape[1] < 2:
        raise DataError(f"output {output.shape} and labels {labels.shape} do not fit: (n, classes) and (n,) are needed")
    classes = output.shape[1]
    valid = (labels >= 0) & (labels < classes) & (labels == np.floor(labels))
    if not valid.all():
        raise DataError(f"label {labels[~valid][0]} is no class of 0..{classes - 1}")
    return labels.astype(np.int64)
