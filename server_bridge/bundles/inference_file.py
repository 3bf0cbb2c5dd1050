"""The inference graph of a bundle: its trainable tensors lie in the weights file."""

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from edge_agent.model.bundle import WEIGHTS
from edge_agent.wire.tensors import Weights, encode_weights

_HEADER_LENGTH_BYTES = 8


def initial_weights(model: onnx.ModelProto, names: Sequence[str]) -> Weights:
    """Values of initialisers, float32."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    return {name: _array(tensors[name]) for name in names}


def _array(tensor: onnx.TensorProto) -> NDArray[np.float32]:
    array: NDArray[Any] = numpy_helper.to_array(tensor)
    return array.astype(np.float32)


def inference_file(model: onnx.ModelProto, weights: Weights) -> bytes:
    """The graph with its trainable tensors pointing into the weights file."""
    return outside_file(model, {WEIGHTS: weights})


def outside_file(model: onnx.ModelProto, files: Mapping[str, Weights]) -> bytes:
    """The graph with its initialisers pointing into safetensors files that hold them.

    Args:
        model: with all initialisers inside.
        files: the tensors of each file, which may be more than the graph has.
    """
    outside = onnx.ModelProto()
    outside.CopyFrom(model)
    for location, tensors in files.items():
        offsets = _offsets(encode_weights(tensors))
        for tensor in outside.graph.initializer:
            if tensor.name in offsets:
                _point(tensor, location, *offsets[tensor.name])
    return bytes(outside.SerializeToString(deterministic=True))


def _point(tensor: TensorProto, location: str, start: int, stop: int) -> None:
    tensor.CopyFrom(TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims))
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(start)), ("length", str(stop - start))):
        tensor.external_data.add(key=key, value=value)


def _offsets(payload: bytes) -> dict[str, tuple[int, int]]:
    """Where each tensor lies in a safetensors file: 8 bytes of header length, the header, the data."""
    (length,) = struct.unpack("<Q", payload[:_HEADER_LENGTH_BYTES])
    begin = _HEADER_LENGTH_BYTES + length
    header: dict[str, Any] = json.loads(payload[_HEADER_LENGTH_BYTES:begin])
    entries = {name: entry["data_offsets"] for name, entry in header.items() if name != "__metadata__"}
    return {name: (begin + start, begin + stop) for name, (start, stop) in entries.items()}
