"""Updates: weights minus base weights, coded and compressed."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import zstandard
from numpy.typing import NDArray
from safetensors.numpy import save

from edge_agent.wire.errors import WireError
from edge_agent.wire.manifest import TrainableSpec
from edge_agent.wire.release import unpack
from edge_agent.wire.tensors import Weights, read_safetensors

Coding = Literal["fp32", "fp16", "int8"]
INT8_BLOCK = 1024
HEADER_BYTES = 2048  # of a tensor's header entries: two names of 128 characters, escaped
ZSTD_LEVEL = 3
_CODES = "code."
_SCALE = "scale."


def encode_update(delta: Mapping[str, NDArray[np.float32]], coding: Coding) -> bytes:
    """Code a delta and compress it.

    Args:
        delta: named float32 tensors, trained minus base.
        coding: ``fp32``, ``fp16``, or ``int8`` with a float32 scale per 1,024 values.
    """
    return _pack(_coded(delta, coding))


@dataclass(frozen=True, slots=True)
class CodedUpdate:
    """An update as it travels, and what the coding lost.

    Attributes:
        payload: for :func:`decode_update`.
        residual: what was wanted minus what the payload decodes to; to be added to the next delta.
        error: L2 norm of the residual over that of what was wanted; 0 where nothing was wanted.
    """

    payload: bytes
    residual: Weights
    error: float


def code_update(delta: Weights, coding: Coding, residual: Weights | None = None) -> CodedUpdate:
    """Code a delta together with what the coding of the one before lost (error feedback).

    Without feedback, changes smaller than half a step of the coding are lost in every round; with it they add up
    until they are sent.

    Args:
        delta: finite float32 tensors, trained minus base.
        residual: of the update before, the same tensors; None, of other shapes, not finite, or longer than the
            delta itself: none.

    Source: error feedback of Seide et al. 2014 and Karimireddy et al. 2019, algorithm 2, for a quantiser.
    """
    wanted = _wanted(delta, residual)
    coded = _coded(wanted, coding)
    lost = {name: tensor - _value(coded, name, coding) for name, tensor in wanted.items()}
    length, lost_length = _length(wanted), _length(lost)
    return CodedUpdate(_pack(coded), lost, lost_length / length if length > 0 else 0.0)


def _wanted(delta: Weights, residual: Weights | None) -> Weights:
    if residual is None or {name: tensor.shape for name, tensor in residual.items()} != {
        name: tensor.shape for name, tensor in delta.items()
    }:
        return delta
    if not _length(residual) <= _length(delta):
        return delta
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = {name: tensor + residual[name] for name, tensor in delta.items()}
    return wanted if all(np.isfinite(tensor).all() for tensor in wanted.values()) else delta


def _coded(delta: Mapping[str, NDArray[np.float32]], coding: Coding) -> dict[str, NDArray[Any]]:
    coded: dict[str, NDArray[Any]] = {}
    for name in sorted(delta):
        tensor = np.asarray(delta[name], dtype=np.float32, order="C")
        if coding == "fp32":
            coded[name] = tensor
        elif coding == "fp16":
            coded[name] = np.asarray(np.clip(tensor, -65504.0, 65504.0), dtype=np.float16)
        else:
            coded[_CODES + name], coded[_SCALE + name] = _quantise(tensor)
    return coded


def _value(coded: Mapping[str, NDArray[Any]], name: str, coding: Coding) -> NDArray[np.float32]:
    if coding != "int8":
        return coded[name].astype(np.float32)
    return _spread(coded[_CODES + name], coded[_SCALE + name])


def _pack(coded: dict[str, NDArray[Any]]) -> bytes:
    return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(save(coded))


def _length(tensors: Weights) -> float:
    return math.sqrt(sum(float(np.square(tensor, dtype=np.float64).sum()) for tensor in tensors.values()))


def decode_update(payload: bytes, coding: Coding, specs: Sequence[TrainableSpec]) -> Weights:
    """A delta from outside, checked against the bundle's tensors.

    Never unpacks more than the specs' own size allows.

    Raises:
        WireError: not zstd or safetensors; a tensor missing, extra, misshapen, of another
            coding, or not finite (named).
    """
    cap_bytes = update_cap_bytes(specs)
    raw = unpack(payload, cap_bytes, "update")
    coded = read_safetensors(raw, "update")
    delta: Weights = {}
    for spec in specs:
        delta[spec.name] = _decode_tensor(coded, spec, coding)
    if coded:
        raise WireError("update", f"extra tensor {sorted(coded)[0]!r}")
    return delta


def update_cap_bytes(specs: Sequence[TrainableSpec]) -> int:
    """The most an honest update of these tensors can take, coded or unpacked."""
    values = sum(math.prod(spec.shape) for spec in specs)
    raw = 4 * values + HEADER_BYTES * (len(specs) + 1)
    return raw + raw // 128 + 1024


def _quantise(tensor: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    flat = tensor.reshape(-1)
    blocks = -(-flat.size // INT8_BLOCK)
    padded = np.zeros(blocks * INT8_BLOCK, np.float32)
    padded[: flat.size] = flat
    rows = padded.reshape(blocks, INT8_BLOCK)
    scale = (np.abs(rows).max(axis=1) / np.float32(127)).astype(np.float32)
    safe = np.where(scale > 0, scale, np.float32(1))
    with np.errstate(invalid="ignore"):  # a scale that is not finite tells the reader
        codes = np.rint(rows / safe[:, None]).clip(-127, 127).astype(np.int8)
    return codes.reshape(-1)[: flat.size].reshape(tensor.shape), scale


def _decode_tensor(coded: dict[str, NDArray[Any]], spec: TrainableSpec, coding: Coding) -> NDArray[np.float32]:
    dtype = {"fp32": np.float32, "fp16": np.float16, "int8": np.int8}[coding]
    tensor = coded.pop(_CODES + spec.name if coding == "int8" else spec.name, None)
    if tensor is None:
        raise WireError("update", f"missing tensor {spec.name!r}")
    if tensor.dtype != dtype:
        raise WireError("update", f"tensor {spec.name!r} is {tensor.dtype}, coding {coding} needs {np.dtype(dtype)}")
    if list(tensor.shape) != list(spec.shape):
        raise WireError("update", f"tensor {spec.name!r} has shape {list(tensor.shape)}, {list(spec.shape)} is needed")
    decoded = tensor.astype(np.float32) if coding != "int8" else _dequantise(coded, spec, tensor)
    if not np.isfinite(decoded).all():
        raise WireError("update", f"tensor {spec.name!r} is not finite")
    return decoded


def _dequantise(coded: dict[str, NDArray[Any]], spec: TrainableSpec, codes: NDArray[np.int8]) -> NDArray[np.float32]:
    scale = coded.pop(_SCALE + spec.name, None)
    blocks = -(-codes.size // INT8_BLOCK)
    if scale is None or scale.dtype != np.float32 or scale.shape != (blocks,):
        raise WireError("update", f"tensor {spec.name!r} has no fitting scale")
    return _spread(codes, scale)


def _spread(codes: NDArray[np.int8], scale: NDArray[np.float32]) -> NDArray[np.float32]:
    flat = codes.reshape(-1).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        flat *= np.repeat(scale, INT8_BLOCK)[: flat.size]
    return flat.reshape(codes.shape)
