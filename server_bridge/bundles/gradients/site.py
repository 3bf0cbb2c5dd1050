"""One node seen from behind: what a gradient rule works on."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from edge_agent.errors import DataError
from server_bridge.bundles.gradients.forward import Forward, Shape
from server_bridge.bundles.gradients.graph import GraphBuilder


@dataclass(frozen=True)
class Site:
    """A node of the training graph's forward part.

    Args:
        node: the node; a rule may add an output to it.
        graph: where the rule writes.
        forward: shapes.
        upstreams: the gradients of the node's outputs, by position; those that the loss does not depend on are absent.
        wanted: positions of the inputs whose gradient is needed.
    """

    node: onnx.NodeProto
    graph: GraphBuilder
    forward: Forward
    upstreams: Mapping[int, str]
    wanted: frozenset[int]

    @property
    def upstream(self) -> str:
        """The gradient of the first output, for operators that have no other that a gradient reaches."""
        return self.upstreams[0]

    def shape(self, position: int) -> Shape:
        """The shape of an input.

        Raises:
            DataError: shape inference does not know it.
        """
        return self._shape(self.node.input[position])

    @property
    def output_shape(self) -> Shape:
        """The shape of the first output.

        Raises:
            DataError: shape inference does not know it.
        """
        return self._shape(self.node.output[0])

    @property
    def rows(self) -> str:
        """A value that has as many rows as the first output; empty: none is known but that itself."""
        return self.forward.model.graph.input[0].name if self.node.output[0] in self.forward.batched else ""

    def fixed(self, shape: Shape, what: str) -> tuple[int, ...]:
        """A shape without free dimensions.

        Raises:
            DataError: one is free.
        """
        sizes = tuple(size for size in shape if size is not None)
        if len(sizes) != len(shape):
            raise self.refusal(f"{what} has a free dimension", "export the model with fixed sizes but for the batch")
        return sizes

    def constant(self, position: int) -> NDArray[Any] | None:
        """What an input always is; None where it is not given, not known before the graph runs, or trained."""
        if not self.has(position) or position in self.wanted:
            return None
        return self.forward.constant(self.node.input[position])

    def fixed_integers(self, position: int, what: str) -> tuple[int, ...]:
        """An input of integers that is known before the graph runs.

        Raises:
            DataError: it is not.
        """
        value = self.constant(position)
        if value is None:
            raise self.refusal(f"{what} ({self.node.input[position]!r}) is computed while the graph runs")
        return tuple(int(item) for item in np.atleast_1d(value))

    def has(self, position: int) -> bool:
        """Whether an optional input is given."""
        return len(self.node.input) > position and self.node.input[position] != ""

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        value = self._attribute(name)
        return value if isinstance(value, int) else default

    def number(self, name: str, default: float) -> float:
        """A float attribute."""
        value = self._attribute(name)
        return float(value) if isinstance(value, int | float) else default

    def text(self, name: str, default: str) -> str:
        """A string attribute."""
        value = self._attribute(name)
        return value.decode() if isinstance(value, bytes) else default

    def integers(self, name: str, default: Sequence[int]) -> tuple[int, ...]:
        """An attribute of integers."""
        value = self._attribute(name)
        return tuple(int(item) for item in value) if isinstance(value, Sequence) else tuple(default)

    def refusal(self, problem: str, hint: str = "") -> "Obstacle":
        """An error that names the node, its operator and the problem."""
        return refusal(self.node, problem, hint)

    def _shape(self, value: str) -> Shape:
        if value not in self.forward.shapes:
            raise self.refusal(
                f"the shape of {value!r} is unknown", "export the model with fixed sizes but for the batch"
            )
        return self.forward.shapes[value]

    def _attribute(self, name: str) -> object:
        for attribute in self.node.attribute:
            if attribute.name == name:
                value: object = helper.get_attribute_value(attribute)
                return value
        return None


Rule = Callable[[Site], Mapping[int, str]]
"""Writes the gradients of a node's wanted inputs and gives their names by position."""


class Obstacle(DataError):
    """A node that no gradient passes.

    Args:
        node: the node.
        problem: what bars it; the error names node and operator itself.
        hint: the way out, if there is one beside training less.
    """

    def __init__(self, node: onnx.NodeProto, problem: str, hint: str = "") -> None:
        self.node = node
        self.reason = problem
        name = node.name or (node.output[0] if node.output else "")
        operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        super().__init__(f"node {name!r} ({operator}): {problem}", hint)


def refusal(node: onnx.NodeProto, problem: str, hint: str = "") -> Obstacle:
    """An error that names a node, its operator and the problem."""
    return Obstacle(node, problem, hint)


def unbroadcast(graph: GraphBuilder, gradient: str, shape: Shape, target: Shape, rows: str = "") -> str:
    """Sum a gradient over the dimensions along which an operand was broadcast.

    A row's, as of a bias, is a product with ones: ReduceSum down the columns takes many times as long (measured: 256
    rows of 128, 20 us against 1.3).

    Args:
        graph: where to write.
        gradient: of the broadcast result.
        shape: the result's.
        target: the operand's; a free dimension is taken as not broadcast.
        rows: a value that has as many rows as a gradient of two dimensions; empty: the gradient itself.
    """
    lead = len(shape) - len(target)
    if lead and len(target) == 1 and target[0] is not None and target[0] == shape[-1]:
        if lead > 1:
            gradient, rows = graph.reshape(gradient, (-1, target[0])), ""
        return graph.emit("MatMul", graph.ones(rows or gradient), gradient)
    stretched = [lead + axis for axis, size in enumerate(target) if size == 1 and shape[lead + axis] != 1]
    if stretched:
        gradient = graph.sum_over(gradient, stretched, keepdims=1)
    if lead:
        gradient = graph.sum_over(gradient, list(range(lead)), keepdims=0)
    return gradient
