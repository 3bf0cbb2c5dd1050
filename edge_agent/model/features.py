"""Shape and type checks at the boundary: what a graph is fed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.wire.manifest import TensorSpec


class InputCheck:
    """:func:`check_features` for the same inputs again and again: what is as expected costs a few comparisons.

    Args:
        inputs: the manifest's inputs.
    """

    def __init__(self, inputs: Sequence[TensorSpec]) -> None:
        self._inputs = inputs
        self._expected = [(spec.name, np.dtype(spec.dtype), _fixed(spec)) for spec in inputs]

    def __call__(self, features: Mapping[str, NDArray[Any]]) -> int:
        """The batch size.

        Raises:
            DataError: as :func:`check_features`.
        """
        size: int | None = None
        for name, dtype, fixed in self._expected:
            array = features.get(name)
            if array is None or not array.shape or array.shape[1:] != fixed or array.dtype != dtype:
                return check_features(features, self._inputs)
            if size is not None and size != array.shape[0]:
                return check_features(features, self._inputs)
            size = array.shape[0]
        if size is None or len(features) != len(self._expected):
            return check_features(features, self._inputs)
        return size


def check_features(features: Mapping[str, NDArray[Any]], inputs: Sequence[TensorSpec]) -> int:
    """The batch size, once every input is there with its dtype and shape.

    Args:
        features: an array per graph input; the first dimension is the batch.
        inputs: the manifest's inputs.

    Raises:
        DataError: an input is missing, unknown, of another dtype or shape, or batches differ (named).
    """
    for spec in inputs:
        if spec.name not in features:
            raise DataError(f"input {spec.name!r} is missing")
        _check_feature(features[spec.name], spec)
    known = {spec.name for spec in inputs}
    for name in features:
        if name not in known:
            raise DataError(f"input {name!r} is unknown to the model")
    return check_lengths(features)


def check_lengths(features: Mapping[str, NDArray[Any]]) -> int:
    """The batch size that all inputs have; there must be one.

    Raises:
        DataError: an input is a single number, or batches differ.
    """
    if any(not array.shape for array in features.values()):
        raise DataError("an input has no batch dimension")
    sizes = {len(array) for array in features.values()}
    if len(sizes) != 1:
        raise DataError(f"inputs disagree on the batch: {sorted(sizes)}")
    return sizes.pop()


def _check_feature(array: NDArray[Any], spec: TensorSpec) -> None:
    if array.dtype != np.dtype(spec.dtype):
        raise DataError(f"input {spec.name!r} is {array.dtype}, {spec.dtype} is needed")
    free = [None if isinstance(size, str) else size for size in spec.shape]
    fits = array.ndim == len(free) and all(
        wanted in (None, size) for wanted, size in zip(free, array.shape, strict=True)
    )
    if not fits or array.ndim == 0:
        raise DataError(f"input {spec.name!r} has shape {list(array.shape)}, {spec.shape} is needed")


def _fixed(spec: TensorSpec) -> tuple[int, ...] | None:
    """The shape of a sample; None where a dimension besides the batch is free, or the batch is not."""
    if not spec.shape or isinstance(spec.shape[0], int):
        return None
    sizes = tuple(size for size in spec.shape[1:] if isinstance(size, int))
    return sizes if len(sizes) == len(spec.shape) - 1 else None
