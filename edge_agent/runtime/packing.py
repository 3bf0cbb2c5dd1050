"""Monitors' states as bytes: safetensors, whose head is made once for each layout, since a state's never changes."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.wire.tensors import read_safetensors

_KINDS = {"f4": "F32", "f8": "F64", "i2": "I16", "i8": "I64", "u8": "U64"}
_ALIGNED = 8

Layout = tuple[tuple[str, np.dtype[Any], tuple[int, ...]], ...]


def encoded(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Arrays as safetensors, bit for bit.

    Raises:
        KeyError: an array is of a type that no monitor keeps.

    Cost: 0.5 us an array, and its bytes.
    """
    # wide numbers first, as the format has it
    order = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    layout = tuple((name, arrays[name].dtype, arrays[name].shape) for name in order)
    return b"".join((_head(layout), *(arrays[name].tobytes() for name in order)))


def decoded(payload: object) -> dict[str, NDArray[Any]]:
    """From :func:`encoded`.

    Raises:
        DataError: it is no bytes.
        WireError: it is not safetensors.
    """
    if not isinstance(payload, bytes):
        raise DataError("a monitor's stored state is no bytes")
    return {name: array.copy() for name, array in read_safetensors(payload, "a monitor's stored state").items()}


@lru_cache(maxsize=64)
def _head(layout: Layout) -> bytes:
    """Source: the safetensors format: the head's length, the head as JSON padded with spaces, then the numbers."""
    place, named = 0, {}
    for name, dtype, shape in layout:
        end = place + int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        named[name] = {"dtype": _KINDS[dtype.str[1:]], "shape": list(shape), "data_offsets": [place, end]}
        place = end
    text = json.dumps(named, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    return len(text).to_bytes(8, "little") + text
