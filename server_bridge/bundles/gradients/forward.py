"""The graph to be differentiated: nodes, shapes, producers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import onnx
from onnx import shape_inference

_TRIAL_BATCHES = (2, 3)

Shape = tuple[int | None, ...]
"""Dimensions; None where free."""


@dataclass(frozen=True)
class Forward:
    """A model's graph, read for differentiation.

    Args:
        model: the model; its nodes are in topological order.
        shapes: what shape inference knows, by value name.
        element_types: ONNX element types, by value name.
    """

    model: onnx.ModelProto
    shapes: dict[str, Shape]
    element_types: dict[str, int]

    @classmethod
    def read(cls, model: onnx.ModelProto) -> Self:
        """Infer shapes and read the graph.

        Inference runs under two batch sizes, and what differs depends on the batch: a size that the graph
        computes from `Shape` is known only when the batch is.
        """
        (shapes, element_types), (others, _) = (_inferred(model, batch) for batch in _TRIAL_BATCHES)
        merged = {name: _merged(shape, others[name]) for name, shape in shapes.items() if name in others}
        return cls(model, merged, element_types)

    def producer(self, value: str) -> onnx.NodeProto | None:
        """The node that gives a value; None for inputs and initialisers."""
        nodes: Sequence[onnx.NodeProto] = self.model.graph.node
        return next((node for node in nodes if value in node.output), None)

    def is_float(self, value: str) -> bool:
        """Whether a gradient can flow through a value."""
        return self.element_types.get(value, onnx.TensorProto.FLOAT) in (
            onnx.TensorProto.FLOAT,
            onnx.TensorProto.DOUBLE,
            onnx.TensorProto.FLOAT16,
            onnx.TensorProto.BFLOAT16,
        )


def _inferred(model: onnx.ModelProto, batch: int) -> tuple[dict[str, Shape], dict[str, int]]:
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    del fixed.graph.value_info[:]
    for value in fixed.graph.input:
        value.type.tensor_type.shape.dim[0].dim_value = batch
    for value in fixed.graph.output:
        value.type.tensor_type.ClearField("shape")
    graph = shape_inference.infer_shapes(fixed, data_prop=True).graph
    shapes: dict[str, Shape] = {}
    element_types: dict[str, int] = {}
    for value in (*graph.value_info, *graph.input, *graph.output):
        tensor = value.type.tensor_type
        element_types[value.name] = tensor.elem_type
        if tensor.HasField("shape"):
            shapes[value.name] = tuple(_size(dimension) for dimension in tensor.shape.dim)
    for initialiser in graph.initializer:
        element_types[initialiser.name] = initialiser.data_type
        shapes[initialiser.name] = tuple(initialiser.dims)
    return shapes, element_types


def _merged(one: Shape, other: Shape) -> Shape:
    return tuple(a if a == b else None for a, b in zip(one, other, strict=True))


def _size(dimension: onnx.TensorShapeProto.Dimension) -> int | None:
    return dimension.dim_value if dimension.HasField("dim_value") else None
