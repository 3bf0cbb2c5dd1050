"""Which float initialisers are weights, and which are constants that an exporter wrote down beside them."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from server_bridge.bundles.gradients.graph import read_by
from server_bridge.bundles.gradients.rules import FLAT

FROM_NODE = "from a Constant node"
"""What the normal form notes in a tensor that stood in a node."""
_SETTINGS: Mapping[str, frozenset[int]] = MappingProxyType(
    {
        "BatchNormalization": frozenset({3, 4}),
        "Clip": frozenset({1, 2}),
        "OneHot": frozenset({2}),
        "Pad": frozenset({2}),
        "Pow": frozenset({1}),
        "Resize": frozenset({1, 2}),
    }
)
"""Inputs that set how an operator works; a gateway does not learn them."""
_NEUTRAL: Mapping[tuple[str, int], float] = MappingProxyType(
    {("InstanceNormalization", 1): 1.0, ("InstanceNormalization", 2): 0.0}
)
"""Scale and bias that a normalisation without any is written with; also a group's, whose own are applied after it."""
_ARITHMETIC = frozenset({"Div", "Max", "Min", "Mul", "Sub", "Where"})
_PASSING = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"})
_MASK_MOST = -100.0
"""What a mask holds to hide a position: -inf, the least float, -10,000, in window attention -100; and else zeros."""
_NO_FLOATS = frozenset({"ArgMax", "ArgMin", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})


def weight_names(model: onnx.ModelProto) -> list[str]:
    """The float32 initialisers that patterns choose from, in the graph's order.

    Left out are scalars and single numbers in arithmetic (a square root of two, an epsilon), masks, running
    statistics, bounds, exponents, scales of quantisation, means and deviations that values are standardised by, and
    what only comparisons read. Who writes weights as
    initialisers writes constants as nodes: those count only where they hold more values than the initialisers do.
    A tensor's own name still chooses any of them.
    """
    found = _weights(model)
    noted = {tensor.name: tensor.doc_string == FROM_NODE for tensor in model.graph.initializer}
    sizes = {tensor.name: int(np.prod(tensor.dims)) for tensor in model.graph.initializer}
    inside = sum(sizes[name] for name in found if noted[name])
    if 2 * inside > sum(sizes[name] for name in found):
        return found
    return [name for name in found if not noted[name]]


def _weights(model: onnx.ModelProto) -> list[str]:
    """Those that look like weights by their values and by who reads them."""
    smooth, standards = _smooth(model.graph), _standards(model.graph)
    uses: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    for node in model.graph.node:
        for position, name in enumerate(node.input):
            uses.setdefault(name, []).append((node, position))
    made_by: dict[str, str] = {}
    for node in model.graph.node:
        seen = made_by.get(node.input[0], "") if node.op_type in _PASSING and node.input else node.op_type
        made_by.update(dict.fromkeys(node.output, seen))
    return [
        tensor.name
        for tensor in model.graph.initializer
        if tensor.data_type == TensorProto.FLOAT
        and tensor.name in smooth
        and tensor.name not in standards
        and not is_mask(tensor)
        and any(_learned(tensor, node, position, made_by) for node, position in uses.get(tensor.name, ()))
    ]


def _smooth(graph: onnx.GraphProto) -> set[str]:
    """The values on which an output depends otherwise than by comparing."""
    reached = {value.name for value in graph.output}
    for node in reversed(graph.node):
        if reached.intersection(node.output) and node.op_type not in FLAT | _NO_FLOATS:
            reached |= read_by(node)
    return reached


def _standards(graph: onnx.GraphProto) -> set[str]:
    """The numbers by which values are standardised: constants of the data, not learned.

    These are the mean and deviation in (x - mean) / deviation, and the mean in (x - mean) * scale, as Keras on torch
    writes batch normalisation, whose scale is learned. Where x is a graph input, they are whatever vector is
    subtracted from it, and the scale too, and scale and offset in x * scale + offset.
    """
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    given = {value.name for value in graph.input}
    found: set[str] = set()
    for node in graph.node:
        x, *others = node.input or ("",)
        if node.op_type in _PASSING and x in given:
            given.update(node.output)
        first = next((name for name in others if name in shapes), "")
        if node.op_type not in ("Sub", "Div", "Mul") or not first:
            continue
        after = [(next_.op_type, name) for next_ in readers.get(node.output[0], ()) for name in next_.input]
        alike = {(kind, name) for kind, name in after if shapes.get(name) == shapes[first]}
        scaled = {name for kind, name in alike if kind in ("Div", "Mul")}
        divided = {name for kind, name in alike if kind == "Div"}
        if node.op_type == "Sub" and (scaled or (x in given and _is_vector(shapes[first]))):
            found |= {first, *(scaled if x in given else divided)}
        if node.op_type != "Sub" and x in given and any(kind == "Add" for kind, _ in alike):
            found |= {first, *(name for kind, name in alike if kind == "Add")}
    return found


def _is_vector(shape: tuple[int, ...]) -> bool:
    return sum(size > 1 for size in shape) <= 1


def is_mask(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor hides positions: 0 where it shows one, a large negative number where it does not."""
    values = numpy_helper.to_array(tensor)
    return bool(values.size) and bool(((values == 0) | (values <= _MASK_MOST)).all()) and bool((values != 0).any())


def _learned(tensor: onnx.TensorProto, node: onnx.NodeProto, position: int, made_by: Mapping[str, str]) -> bool:
    if not tensor.dims or _quantises(node) or position in _SETTINGS.get(node.op_type, ()):
        return False
    neutral = _NEUTRAL.get((node.op_type, position))
    if neutral is not None and bool((numpy_helper.to_array(tensor) == neutral).all()):
        return False
    if node.op_type != "Add" and node.op_type not in _ARITHMETIC:
        return True
    if int(np.prod(tensor.dims)) > 1:
        return True
    return node.op_type == "Add" and any(_others(node, position, made_by))


def _quantises(node: onnx.NodeProto) -> bool:
    """Whether the floats that a node takes are scales: QuantizeLinear and its inverse, QLinearConv, QGemm ..."""
    return node.op_type.startswith("Q") or "quantize" in node.op_type.lower()


def _others(node: onnx.NodeProto, position: int, made_by: Mapping[str, str]) -> Iterator[bool]:
    """Whether each other operand is a product, perhaps cast or turned: then a single number may be its bias."""
    return (made_by.get(name) in _PRODUCTS for place, name in enumerate(node.input) if place != position)
