"""Labels as a training graph takes them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.wire.manifest import TrainingGraphSpec

_OF_CLASSES = ("cross-entropy", "binary-cross-entropy")
_SIGNED, _UNSIGNED = np.dtype(np.int64), np.dtype(np.uint64)


class LabelCheck:
    """:func:`check_labels` for the same graph again and again: what is as expected costs a few comparisons.

    Args:
        spec: of the graph.
        classes: how many; None for a regression.
    """

    def __init__(self, spec: TrainingGraphSpec, classes: int | None) -> None:
        self._spec, self._classes = spec, classes
        self._below = classes or 0 if spec.loss in _OF_CLASSES else 0

    def __call__(self, labels: NDArray[Any], size: int) -> NDArray[Any]:
        """The labels as the graph takes them, those given where they fit.

        Raises:
            DataError: as :func:`check_labels`.
        """
        if labels.dtype == _SIGNED and labels.shape == (size,) and size:
            magnitudes = labels.view(_UNSIGNED)  # a negative number is a huge one here: one pass, not four
            if magnitudes.item(magnitudes.argmax()) < self._below:  # argmax is no ufunc: a fifth of max's time
                return labels
        return check_labels(labels, size, self._spec, self._classes)


def check_labels(labels: NDArray[Any], size: int, spec: TrainingGraphSpec, classes: int | None) -> NDArray[Any]:
    """Labels as a training graph takes them; out of range they would train silently wrong.

    Args:
        labels: (n,) or (n, 1): whole class numbers in 0..classes-1 or the graph's ignored one; or finite targets.
        size: n, the features' batch.
        spec: of the graph, whose loss says what labels are.
        classes: how many; None for a regression.

    Returns: (n,) int64 for a classification, (n,) float32 for a regression; the labels' own memory where they fit.

    Raises:
        DataError: empty batch, wrong dtype, shape or range.
    """
    if size < 1:
        raise DataError("the batch is empty")
    if labels.shape not in ((size,), (size, 1)):
        raise DataError(f"labels have shape {list(labels.shape)}, [{size}] is needed")
    flat = labels.reshape(size)
    if spec.loss not in _OF_CLASSES:
        return _targets(flat)
    if flat.dtype.kind not in "iu":
        raise DataError(f"labels are {flat.dtype}, whole class numbers are needed")
    return _class_numbers(flat, classes or 0, spec.ignore_index)


def _class_numbers(flat: NDArray[Any], classes: int, ignored: int | None) -> NDArray[np.int64]:
    numbers = flat.astype(np.int64, copy=False)
    outside = (numbers < 0) | (numbers >= classes)
    if ignored is not None:
        outside &= numbers != ignored
    if outside.any():
        besides = "" if ignored is None else f" and not {ignored}, which is ignored"
        raise DataError(f"label {flat[outside][0]} is outside 0..{classes - 1}{besides}")
    return numbers


def _targets(flat: NDArray[Any]) -> NDArray[np.float32]:
    if flat.dtype.kind not in "fiu":
        raise DataError(f"labels are {flat.dtype}, numbers are needed")
    with np.errstate(over="ignore"):
        targets = flat.astype(np.float32)
    if not np.isfinite(targets).all():
        raise DataError("a label is not finite", "as float32, so that 3.4e38 is too large")
    return targets
