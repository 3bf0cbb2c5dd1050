"""Tensors that an exporter wrote several times though the net has them once."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edge_agent.wire.blobs import sha256_hex
from server_bridge.bundles.parameters import FROM_NODE, is_mask

_FOLDED = "onnx::"
"""How torch's older exporter begins the names of what it has folded."""
_DECIMALS = 4
"""Numbers that people begin with have no more; trained ones do."""
Key = tuple[tuple[int, ...], str]


def join_copies(graph: onnx.GraphProto, parted: Sequence[str]) -> None:
    """Make one of initialisers that hold the same values, also where one is the other transposed; in place.

    torch's older exporter folds the matrix of a layer that is used twice to two tensors, the second perhaps an
    Identity of the first, and a table that is also used transposed to another one: trained, they would part.

    Args:
        graph: without Constant nodes.
        parted: what was written as an Identity of an equal tensor. Where one of them has a parameter's name and holds
            more than a number that people begin with, the net is fresh and has cloned layers: nothing is joined then.

    Cost: O(values).
    """
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    if any(_telling(tensors[name]) for name in parted if not name.startswith(_FOLDED)):
        return
    outputs = {value.name for value in graph.output}
    first: dict[Key, str] = {}
    same: dict[str, str] = {}
    turned: dict[str, str] = {}
    for tensor in graph.initializer:
        if tensor.name in outputs or not _telling(tensor):
            continue
        values = numpy_helper.to_array(tensor)
        if _key(values) in first:
            same[tensor.name] = first[_key(values)]
        elif values.ndim == 2 and _key(values.T) in first:
            turned[tensor.name] = first[_key(values.T)]
        else:
            first[_key(values)] = tensor.name
    _rename(graph, same)
    _turn(graph, turned)
    _drop(graph, {*same, *turned})


def _telling(tensor: onnx.TensorProto) -> bool:
    """Whether equal values mean that it is the same tensor: not where all are one round number."""
    plain = tensor.data_type == TensorProto.FLOAT and tensor.data_location != TensorProto.EXTERNAL
    if not plain or tensor.doc_string == FROM_NODE or is_mask(tensor):
        return False
    values = numpy_helper.to_array(tensor)
    if not values.size or not np.isfinite(values).all():
        return False
    number = values.reshape(-1)[0]
    return not bool((values == number).all() and np.round(number, _DECIMALS) == number)


def _key(values: NDArray[Any]) -> Key:
    return values.shape, sha256_hex(np.ascontiguousarray(values).tobytes())


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    if not names:
        return
    for node in graph.node:
        for position, name in enumerate(node.input):
            node.input[position] = names.get(name, name)
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                own = {tensor.name for tensor in inner.initializer}
                _rename(inner, {name: other for name, other in names.items() if name not in own})


def _turn(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Give each name to what transposes the tensor that it is a copy of."""
    nodes = [helper.make_node("Transpose", [source], [name], name=name, perm=[1, 0]) for name, source in names.items()]
    nodes += list(graph.node)
    if names:
        graph.ClearField("node")
        graph.node.extend(nodes)


def _drop(graph: onnx.GraphProto, names: Collection[str]) -> None:
    for field in (graph.initializer, graph.input):
        for position in reversed(range(len(field))):
            if field[position].name in names:
                del field[position]
