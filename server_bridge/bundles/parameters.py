"""Which float initialisers are weights, and which are constants that an exporter wrote down beside them."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

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
_ARITHMETIC = frozenset({"Div", "Max", "Min", "Mul", "Sub", "Where"})
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"})
_MASK_BELOW = -1e30
"""What a mask holds to hide a position: -inf, or the least float."""


def weight_names(model: onnx.ModelProto) -> list[str]:
    """The float32 initialisers that patterns choose from, in the graph's order.

    Left out are scalars and single numbers in arithmetic (a square root of two, an epsilon), masks, running
    statistics, bounds, exponents, and scales of quantisation. A tensor's own name still chooses any of them.
    """
    uses: dict[str, list[tuple[onnx.NodeProto, int]]] = {}
    for node in model.graph.node:
        for position, name in enumerate(node.input):
            uses.setdefault(name, []).append((node, position))
    made_by = {name: node.op_type for node in model.graph.node for name in node.output}
    return [
        tensor.name
        for tensor in model.graph.initializer
        if tensor.data_type == TensorProto.FLOAT
        and not is_mask(tensor)
        and any(_learned(tensor, node, position, made_by) for node, position in uses.get(tensor.name, ()))
    ]


def is_mask(tensor: onnx.TensorProto) -> bool:
    """Whether a tensor hides positions: 0 where it shows one, a huge negative number where it does not."""
    values = numpy_helper.to_array(tensor)
    return bool(values.size) and bool(((values == 0) | (values < _MASK_BELOW)).all()) and bool((values != 0).any())


def _learned(tensor: onnx.TensorProto, node: onnx.NodeProto, position: int, made_by: Mapping[str, str]) -> bool:
    if not tensor.dims or _quantises(node) or position in _SETTINGS.get(node.op_type, ()):
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
    """Whether each other operand is a product's result: then a single number may be its bias."""
    return (made_by.get(name) in _PRODUCTS for place, name in enumerate(node.input) if place != position)
