"""How the features of one sample lie in a blob."""

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.samples.record import FeatureArrays
from edge_agent.wire.manifest import TensorSpec


class FeatureLayout:
    """The inputs of a model, one after the other, each in its own dtype.

    Args:
        inputs: the manifest's; only the first dimension, the batch, may be free.

    Raises:
        DataError: another dimension is free.
    """

    def __init__(self, inputs: Sequence[TensorSpec]) -> None:
        self._fields = [(spec.name, np.dtype(spec.dtype).newbyteorder("<"), _sample_shape(spec)) for spec in inputs]
        described = [[name, dtype.str, list(shape)] for name, dtype, shape in self._fields]
        self.digest = hashlib.sha256(json.dumps(described).encode()).hexdigest()[:16]
        self.row_bytes = sum(dtype.itemsize * math.prod(shape) for _, dtype, shape in self._fields)

    def pack(self, features: Mapping[str, NDArray[Any]], rows: Sequence[int]) -> list[bytes]:
        """One blob for each of the given rows.

        Raises:
            DataError: an input is missing or has another shape (named).
        """
        columns = [self._column(features, field, rows) for field in self._fields]
        return [b"".join(parts) for parts in zip(*columns, strict=True)]

    def matrix(self, features: Mapping[str, NDArray[Any]], rows: Sequence[int] | None) -> NDArray[np.uint8]:
        """(n, row_bytes) the same side by side; of all rows, if ``rows`` is None. Of one input without a copy.

        Raises:
            DataError: as :meth:`pack`.
        """
        columns = []
        for field in self._fields:
            cast = self._cast(features, field)
            chosen = cast if rows is None else cast[rows]
            columns.append(chosen.reshape(len(chosen), math.prod(field[2])).view(np.uint8))
        return columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1)

    def unpack(self, blobs: Sequence[bytes]) -> FeatureArrays:
        """(n, ...) arrays by input name.

        Raises:
            DataError: a blob is of another length.
        """
        return self.arrays(self.rows(blobs))

    def rows(self, blobs: Sequence[bytes]) -> NDArray[np.uint8]:
        """(n, row_bytes) as :meth:`matrix` gave them.

        Raises:
            DataError: a blob is of another length.
        """
        if any(len(blob) != self.row_bytes for blob in blobs):
            raise DataError("a stored sample is not as long as the model's inputs")
        return np.frombuffer(b"".join(blobs), dtype=np.uint8).reshape(len(blobs), self.row_bytes)

    def arrays(self, whole: NDArray[np.uint8]) -> FeatureArrays:
        """(n, ...) arrays by input name, from the (n, row_bytes) of :meth:`matrix`."""
        features: FeatureArrays = {}
        start = 0
        for name, dtype, shape in self._fields:
            end = start + dtype.itemsize * math.prod(shape)
            column = np.ascontiguousarray(whole[:, start:end])
            features[name] = column.view(dtype).reshape(len(whole), *shape)
            start = end
        return features

    def _column(
        self,
        features: Mapping[str, NDArray[Any]],
        field: tuple[str, np.dtype[Any], tuple[int, ...]],
        rows: Sequence[int],
    ) -> list[bytes]:
        cast = self._cast(features, field)
        return [cast[row].tobytes() for row in rows]

    def _cast(
        self, features: Mapping[str, NDArray[Any]], field: tuple[str, np.dtype[Any], tuple[int, ...]]
    ) -> NDArray[Any]:
        name, dtype, shape = field
        if name not in features:
            raise DataError(f"input {name!r} is missing")
        array = features[name]
        if array.shape[1:] != shape:
            raise DataError(f"input {name!r} has shape {list(array.shape[1:])} a sample, {list(shape)} is needed")
        return np.ascontiguousarray(array, dtype=dtype)


def finite_rows(features: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
    """(n,) bool: whether every feature of the row is finite."""
    n = max(map(len, features.values()), default=0)
    finite = np.ones(n, dtype=np.bool_)
    for array in features.values():
        if array.dtype.kind == "f":
            finite &= np.isfinite(array.reshape(n, -1)).all(axis=1)
    return finite


def _sample_shape(spec: TensorSpec) -> tuple[int, ...]:
    fixed = [size for size in spec.shape[1:] if isinstance(size, int)]
    if len(spec.shape) < 1 or len(fixed) != len(spec.shape) - 1:
        raise DataError(
            f"input {spec.name!r} has shape {spec.shape}: only the first dimension may be free",
            "export the model with fixed dimensions but for the batch",
        )
    return tuple(fixed)
