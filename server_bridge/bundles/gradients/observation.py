"""What shape inference cannot tell: shapes and sizes as trial runs of the model show them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from edge_agent.errors import DataError
from edge_agent.model.session import Session
from server_bridge.bundles.gradients.graph import read_by

_TRIALS = ((2, 3), (17, 23), (64, 96), (256, 320))
"""Pairs of sizes for free dimensions other than the batch: nets bar some, for a kernel or a table's length."""
_BATCHES = (2, 3)
_SIZES_MAX = 64
"""Elements of a tensor that can be sizes, axes, bounds or scales; longer ones are data."""
_BY_SHAPE = ("Shape", "Size")
_BY_DATA = ("NonZero", "Unique", "Compress", "NonMaxSuppression", "StringSplit")
"""Operators whose outputs' shapes depend on the data: zeros would show one that means nothing."""
_RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial")

Shape = tuple[int | None, ...]


@dataclass(frozen=True)
class Observed:
    """What two trial runs agree on, by value name: see `Forward`. What is trained counts as settled, too."""

    shapes: dict[str, Shape]
    element_types: dict[str, int]
    settled: dict[str, NDArray[Any]]


def unsettled(model: onnx.ModelProto, shapes: Mapping[str, Shape]) -> bool:
    """Whether a graph computes sizes, or values of unknown shape."""
    for node in model.graph.node:
        if node.op_type in _BY_SHAPE:
            return True
        for name in node.output:
            if name and (name not in shapes or None in shapes[name][1:]):
                return True
    return False


def observed(model: onnx.ModelProto) -> Observed:
    """Run the model on zeros, twice, and see.

    Nothing is said of values whose shape depends on the data, and nothing at all of a model that no trial
    size suits, or that holds values which no graph can give out: rules then work with what inference knows, and
    refuse by name what needs more.
    """
    names = _visible(model)
    try:
        session = _exposed(model, names)
    except DataError:
        return Observed({}, {}, {})
    for sizes in _TRIALS:
        try:
            runs = [session.run(_zeros(model, batch, size)) for batch, size in zip(_BATCHES, sizes, strict=True)]
        except DataError:
            continue
        return _compared(runs, names, _inputless(model))
    return Observed({}, {}, {})


def _exposed(model: onnx.ModelProto, names: Sequence[str]) -> Session:
    """The model with every value as an output."""
    exposed = onnx.ModelProto()
    exposed.CopyFrom(model)
    del exposed.graph.output[:]
    exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return Session("the model's trial run", exposed.SerializeToString(), {}, threads=1)


def _visible(model: onnx.ModelProto) -> list[str]:
    """Values whose shape does not depend on the data."""
    hidden: set[str] = set()
    names = []
    for node in model.graph.node:
        if node.op_type in _BY_DATA or hidden.intersection(read_by(node)):
            hidden.update(node.output)
        else:
            names += [name for name in node.output if name]
    return names


def _inputless(model: onnx.ModelProto) -> set[str]:
    """Values that depend on the inputs' shapes at most, not on what they hold."""
    data = {value.name for value in model.graph.input}
    sizes = set()
    for node in model.graph.node:
        if node.op_type not in _BY_SHAPE and (data.intersection(read_by(node)) or node.op_type in _RANDOM):
            data.update(node.output)
        else:
            sizes.update(node.output)
    return sizes


def _zeros(model: onnx.ModelProto, batch: int, size: int) -> dict[str, NDArray[Any]]:
    """Inputs of zeros; free dimensions of one name have one size, of different names different sizes."""
    free: dict[str, int] = {}
    feeds = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = [batch]
        for dimension in list(tensor.shape.dim)[1:]:
            if dimension.HasField("dim_value"):
                shape.append(dimension.dim_value)
            else:
                shape.append(free.setdefault(dimension.dim_param, size + len(free)))
        feeds[value.name] = np.zeros(shape, dtype=helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    return feeds


def _compared(runs: Sequence[dict[str, NDArray[Any]]], names: Sequence[str], inputless: set[str]) -> Observed:
    seen = Observed({}, {}, {})
    for name in names:
        one, other = (run[name] for run in runs)
        if not isinstance(one, np.ndarray) or one.ndim != other.ndim:
            continue
        seen.shapes[name] = tuple(a if a == b else None for a, b in zip(one.shape, other.shape, strict=True))
        if one.dtype.kind in "fiub":
            seen.element_types[name] = helper.np_dtype_to_tensor_dtype(one.dtype)
        if name in inputless and one.dtype.kind in "iubf" and one.size <= _SIZES_MAX and np.array_equal(one, other):
            seen.settled[name] = one
    return seen
