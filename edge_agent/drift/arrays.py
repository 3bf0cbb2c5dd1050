"""The arrays of a bundle's monitors as one file: ``drift.safetensors``, a tensor ``<monitor>.<array>``."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from edge_agent.errors import DataError
from edge_agent.wire.errors import WireError
from edge_agent.wire.tensors import read_safetensors

DRIFT_FILE = "drift.safetensors"
DRIFT_FILE_CAP_BYTES = 64 * 1024 * 1024

MonitorArrays = dict[str, dict[str, NDArray[Any]]]
"""Monitor to array name to array."""


def encode_drift_arrays(arrays: Mapping[str, Mapping[str, NDArray[Any]]]) -> bytes:
    """Deterministic safetensors bytes; the arrays keep their types.

    Args:
        arrays: by monitor, whose names hold no dot; array names may.
    """
    flat = {f"{monitor}.{name}": array for monitor, named in arrays.items() for name, array in named.items()}
    return save({name: np.ascontiguousarray(flat[name]).reshape(flat[name].shape) for name in sorted(flat)})


def decode_drift_arrays(payload: bytes) -> MonitorArrays:
    """From :func:`encode_drift_arrays`; a copy that may be written to.

    Raises:
        DataError: too large, or no such file (named).
    """
    if len(payload) > DRIFT_FILE_CAP_BYTES:
        raise DataError(f"{DRIFT_FILE} has {len(payload)} bytes, the cap is {DRIFT_FILE_CAP_BYTES}")
    try:
        tensors = read_safetensors(payload, DRIFT_FILE)
    except WireError as error:
        raise DataError(f"{DRIFT_FILE}: {error.problem}", "build the bundle again") from None
    arrays: MonitorArrays = {}
    for name, tensor in tensors.items():
        monitor, dot, array = name.partition(".")
        if not (monitor and dot and array):
            raise DataError(f"{DRIFT_FILE}: tensor {name!r} names no monitor", "build the bundle again")
        arrays.setdefault(monitor, {})[array] = np.array(tensor)
    return arrays
