"""Parts of a tensor that an exporter takes out of a sequence."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

_INTEGERS = (onnx.TensorProto.INT32, onnx.TensorProto.INT64)


def cut_sequences(graph: onnx.GraphProto) -> None:
    """Make a Slice of what a SequenceAt takes from a SplitToSequence, in place.

    torch's newer exporter writes `chunk` and `split` so where it does not optimise; through a Slice gradients pass.
    Left as they are: places counted from the end, or computed, and splits without known sizes.

    Args:
        graph: without Constant nodes.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer if tensor.data_type in _INTEGERS}
    splits = {node.output[0]: node for node in graph.node if node.op_type == "SplitToSequence"}
    for node in graph.node:
        if node.op_type != "SequenceAt" or node.input[0] not in splits or node.input[1] not in constants:
            continue
        split = splits[node.input[0]]
        if len(split.input) < 2 or split.input[1] not in constants:
            continue
        part = _Part.of(split, *(numpy_helper.to_array(constants[name]) for name in (split.input[1], node.input[1])))
        if part is not None:
            _cut(graph, node, split.input[0], part)


@dataclass(frozen=True)
class _Part:
    """From where to where along which axis."""

    start: int
    end: int
    axis: int

    @classmethod
    def of(cls, split: onnx.NodeProto, sizes: NDArray[np.int64], place: NDArray[np.int64]) -> Self | None:
        axes = [attribute.i for attribute in split.attribute if attribute.name == "axis"]
        position, axis = int(place), axes[0] if axes else 0
        if position < 0 or (sizes.ndim and position >= len(sizes)):
            return None
        if sizes.ndim:
            return cls(int(sizes[:position].sum()), int(sizes[: position + 1].sum()), axis)
        return cls(position * int(sizes), (position + 1) * int(sizes), axis)


def _cut(graph: onnx.GraphProto, node: onnx.NodeProto, source: str, part: _Part) -> None:
    names = []
    for what, number in (("start", part.start), ("end", part.end), ("axis", part.axis)):
        names.append(f"{node.output[0]}.{what}")
        graph.initializer.append(numpy_helper.from_array(np.array([number], dtype=np.int64), names[-1]))
    node.CopyFrom(helper.make_node("Slice", [source, *names], list(node.output), name=node.name))
