"""Per-sample losses of a model's primary output."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import DataError

LossName = Literal["cross-entropy", "binary-cross-entropy", "mse", "mae", "huber"]
Kind = Literal["classification", "regression"]

HUBER_DELTA = 1.0


def sample_losses(
    loss: LossName, output: NDArray[Any], labels: NDArray[Any], *, delta: float = HUBER_DELTA
) -> NDArray[np.float64]:
    """The loss of each sample, unclipped; classes weigh the same and labels are not smoothed.

    Args:
        loss: ``cross-entropy`` of (n, classes) logits; ``binary-cross-entropy`` of one logit a sample, that of
            class 1; ``mse``, ``mae`` or ``huber`` of one value a sample.
        output: (n, classes), or (n,) or (n, 1); may hold non-finite numbers.
        labels: (n,) class numbers 0..classes-1 (integers, or floats that are whole), or target values.
        delta: where Huber's loss turns from a parabola to a line, > 0.

    Returns:
        (n,) float64, >= 0; ``inf`` where the output of the sample is not finite.

    Raises:
        DataError: shapes that do not fit, or a label that is no class or not finite.

    Source: Huber 1964 for the last, as torch.nn.HuberLoss has it.

    Cost:
        O(n classes); no sample gives an empty array.
    """
    if loss == "cross-entropy":
        return _cross_entropy(output, labels)
    if loss == "binary-cross-entropy":
        return _binary_cross_entropy(output, labels)
    return _distance(loss, output, labels, delta)


def sample_right(kind: Kind, output: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether the chosen class is the labelled one.

    Args:
        kind: a regression is never right or wrong: all False.
        output: (n, classes) logits, of which the largest chooses; (n,) or (n, 1) logits of class 1, which is
            chosen above 0; or values.
        labels: (n,) class numbers, or target values.

    Returns:
        (n,) bool; False where the output of the sample is not finite.

    Raises:
        DataError: as :func:`sample_losses`.
    """
    if kind == "regression":
        return np.zeros(len(labels), dtype=np.bool_)
    if is_one_logit(output):
        logits = _one_a_sample(output, labels)
        right: NDArray[np.bool_] = ((logits > 0) == _classes_of(labels, 2)) & np.isfinite(logits)
        return right
    chosen = _class_numbers(output, labels)
    largest: NDArray[np.bool_] = (output.argmax(axis=1) == chosen) & np.isfinite(output).all(axis=1)
    return largest


def is_one_logit(output: NDArray[Any]) -> bool:
    """Whether a classification's output is (n,) or (n, 1): the logit of class 1 of two."""
    return output.ndim == 1 or output.shape[1:] == (1,)


def _cross_entropy(output: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.float64]:
    chosen = _class_numbers(output, labels)
    finite = np.isfinite(output).all(axis=1)
    logits = np.where(finite[:, None], output, 0.0).astype(np.float64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    losses = np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(chosen)), chosen]
    return np.where(finite, np.maximum(losses, 0.0), np.inf)


def _binary_cross_entropy(output: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.float64]:
    """log(1 + exp(z)) - y z, without overflow."""
    values = _one_a_sample(output, labels)
    finite = np.isfinite(values)
    logits = np.where(finite, values, 0.0)
    losses = np.maximum(logits, 0.0) - logits * _classes_of(labels, 2) + np.log1p(np.exp(-np.abs(logits)))
    return np.where(finite, losses, np.inf)


def _distance(loss: LossName, output: NDArray[Any], labels: NDArray[Any], delta: float) -> NDArray[np.float64]:
    values = _one_a_sample(output, labels)
    targets = labels.astype(np.float64)
    if not np.isfinite(targets).all():
        raise DataError("a label is not finite")
    finite = np.isfinite(values)
    with np.errstate(over="ignore"):
        away = np.abs(np.where(finite, values, 0.0) - targets)
        if loss == "mse":
            away = np.square(away)
        elif loss == "huber":
            away = np.where(away <= delta, 0.5 * np.square(away), delta * (away - 0.5 * delta))
    return np.where(finite, away, np.inf)


def _one_a_sample(output: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.float64]:
    if output.shape not in ((len(labels),), (len(labels), 1)) or labels.ndim != 1:
        raise DataError(f"output {output.shape} and labels {labels.shape} do not fit: one value a sample is needed")
    return output.reshape(-1).astype(np.float64)


def _class_numbers(output: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.int64]:
    if output.ndim != 2 or labels.ndim != 1 or len(output) != len(labels) or output.shape[1] < 2:
        raise DataError(f"output {output.shape} and labels {labels.shape} do not fit: (n, classes) and (n,) are needed")
    return _classes_of(labels, output.shape[1])


def _classes_of(labels: NDArray[Any], classes: int) -> NDArray[np.int64]:
    valid = (labels >= 0) & (labels < classes) & (labels == np.floor(labels))
    if not valid.all():
        raise DataError(f"label {labels[~valid][0]} is no class of 0..{classes - 1}")
    return labels.astype(np.int64)
