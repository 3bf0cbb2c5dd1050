"""Weights: named float32 tensors as safetensors."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from edge_agent.wire.errors import WireError
from edge_agent.wire.manifest import TrainableSpec

WEIGHTS_CAP_BYTES = 1024 * 1024 * 1024

Weights = dict[str, NDArray[np.float32]]


def encode_weights(weights: Mapping[str, NDArray[np.float32]]) -> bytes:
    """Deterministic safetensors bytes: the digest of equal weights is equal."""
    return save({name: np.asarray(weights[name], dtype=np.float32, order="C") for name in sorted(weights)})


def decode_weights(payload: bytes, *, cap_bytes: int = WEIGHTS_CAP_BYTES) -> Weights:
    """Named float32 tensors from outside; finite or not.

    Raises:
        WireError: too large, not safetensors, or a tensor that is not float32.
    """
    if len(payload) > cap_bytes:
        raise WireError("weights", f"{len(payload)} bytes, the cap is {cap_bytes}")
    tensors = read_safetensors(payload, "weights")
    for name, tensor in tensors.items():
        if tensor.dtype != np.float32:
            raise WireError("weights", f"tensor {name!r} is {tensor.dtype}, float32 is needed")
    return tensors


def read_safetensors(payload: bytes, what: str) -> dict[str, NDArray[Any]]:
    """Tensors of any type from outside, by name.

    Args:
        what: how an error names it.

    Raises:
        WireError: not safetensors, or of a type that numpy does not have.
    """
    try:
        return load(payload)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise WireError(what, f"not safetensors ({error})") from None


def check_weights(weights: Mapping[str, NDArray[Any]], specs: Sequence[TrainableSpec]) -> None:
    """Refuse weights that do not fit a bundle, by name.

    Raises:
        WireError: a tensor is missing, extra, misshapen, wrongly typed or not finite.
    """
    expected = {spec.name: spec for spec in specs}
    missing = [name for name in expected if name not in weights]
    extra = [name for name in weights if name not in expected]
    if missing:
        raise WireError("weights", f"missing tensor {missing[0]!r}")
    if extra:
        raise WireError("weights", f"extra tensor {extra[0]!r}")
    for name, spec in expected.items():
        tensor = weights[name]
        if tensor.dtype != np.dtype(spec.dtype):
            raise WireError("weights", f"tensor {name!r} is {tensor.dtype}, {spec.dtype} is needed")
        if list(tensor.shape) != list(spec.shape):
            raise WireError("weights", f"tensor {name!r} has shape {list(tensor.shape)}, {list(spec.shape)} is needed")
        if not np.isfinite(tensor).all():
            raise WireError("weights", f"tensor {name!r} is not finite")
