"""The graph to be differentiated: nodes, shapes, producers, constants."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper, shape_inference

from edge_agent.errors import DataError
from server_bridge.bundles.gradients.observation import Observed, observed, unsettled

_TRIAL_BATCHES = (2, 3)
_BATCH_LED = tuple((batch,) for batch in _TRIAL_BATCHES)
_FLOATS = (
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.DOUBLE,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.BFLOAT16,
)

Shape = tuple[int | None, ...]
"""Dimensions; None where free."""


@dataclass(frozen=True)
class Forward:
    """A model's graph, read for differentiation.

    Args:
        model: the model; its nodes are in topological order.
        shapes: what shape inference and, where it fails, trial runs know, by value name.
        element_types: ONNX element types, by value name.
        tensors: initialisers and Constant nodes, by value name.
        settled: integers that the graph computes and that are always the same, by value name.
        batched: values whose first dimension is known to be the batch, as every model input's is.
    """

    model: onnx.ModelProto
    shapes: dict[str, Shape]
    element_types: dict[str, int]
    tensors: Mapping[str, onnx.TensorProto] = field(default_factory=dict)
    settled: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    batched: frozenset[str] = frozenset()

    @classmethod
    def read(cls, model: onnx.ModelProto) -> Self:
        """Infer shapes and read the graph.

        Inference runs under two batch sizes, and what differs depends on the batch: a size that the graph
        computes from `Shape` is known only when the batch is. Where inference leaves a shape open, or a graph
        computes sizes, the model itself is run under two batches and what came out is looked at.
        """
        (shapes, element_types), (others, _) = (_inferred(model, batch) for batch in _TRIAL_BATCHES)
        merged = {name: merged_shape(shape, others[name]) for name, shape in shapes.items() if name in others}
        seen = observed(model) if unsettled(model, merged) else Observed({}, {}, {})
        return cls(
            model,
            merged | seen.shapes,
            element_types | seen.element_types,
            constant_tensors(model.graph),
            seen.settled,
            frozenset(name for name in merged if (shapes[name][:1], others[name][:1]) == _BATCH_LED),
        )

    def shape(self, value: str) -> Shape:
        """The shape of a value.

        Raises:
            DataError: neither inference nor a trial run knows it.
        """
        if value not in self.shapes:
            raise DataError(f"the shape of {value!r} is unknown", "export the model with fixed sizes but for the batch")
        return self.shapes[value]

    def producer(self, value: str) -> onnx.NodeProto | None:
        """The node that gives a value; None for inputs and initialisers."""
        return next((node for node in self.model.graph.node if value in node.output), None)

    def is_float(self, value: str) -> bool:
        """Whether a gradient can flow through a value."""
        return self.element_types.get(value, onnx.TensorProto.FLOAT) in _FLOATS

    def constant(self, value: str) -> NDArray[Any] | None:
        """What a value always is, as far as is known; a tensor that is trained counts too."""
        if value in self.tensors:
            array: NDArray[Any] = numpy_helper.to_array(self.tensors[value])
            return array
        return self.settled.get(value)


def merged_shape(one: Shape, other: Shape) -> Shape:
    """The dimensions in which two trials agree."""
    return tuple(a if a == b else None for a, b in zip(one, other, strict=True))


def constant_tensors(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    """Initialisers and the values of Constant nodes, by name."""
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
            value = _constant_value(node)
            if value is not None:
                tensors[node.output[0]] = value
    return tensors


def _constant_value(node: onnx.NodeProto) -> onnx.TensorProto | None:
    attribute = node.attribute[0]
    value: Any = onnx.helper.get_attribute_value(attribute)
    match attribute.name:
        case "value":
            tensor: onnx.TensorProto = value
            return tensor
        case "value_float" | "value_floats":
            return numpy_helper.from_array(np.array(value, dtype=np.float32))
        case "value_int" | "value_ints":
            return numpy_helper.from_array(np.array(value, dtype=np.int64))
        case _:
            return None


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
        if not value.type.HasField("tensor_type"):
            continue  # a sequence or an optional: what may flow through it is not known
        tensor = value.type.tensor_type
        element_types[value.name] = tensor.elem_type
        if tensor.HasField("shape"):
            shapes[value.name] = tuple(_size(dimension) for dimension in tensor.shape.dim)
    for initialiser in graph.initializer:
        element_types[initialiser.name] = initialiser.data_type
        shapes[initialiser.name] = tuple(initialiser.dims)
    return shapes, element_types


def _size(dimension: onnx.TensorShapeProto.Dimension) -> int | None:
    return dimension.dim_value if dimension.HasField("dim_value") else None
