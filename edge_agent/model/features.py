"""Shape and type checks at the boundary: what a graph is fed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.wire.manifest import TensorSpec


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
    sizes = {len(features[name]) for name in known}
    if len(sizes) > 1:
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
