"""Writing an ONNX graph: nodes with fresh names, and constants that are shared."""

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

Attribute = int | float | str | Sequence[int] | onnx.TensorProto


class GraphBuilder:
    """A growing list of nodes in topological order.

    Args:
        taken: names that fresh ones must not repeat.
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self._taken = set(taken)
        self._constants: dict[tuple[str, tuple[int, ...], bytes], onnx.TensorProto] = {}
        self._ones: dict[str, str] = {}
        self._counter = itertools.count(1)

    def emit(self, operator: str, *inputs: str, **attributes: Attribute) -> str:
        """Append a node of one output, freshly named, and give that name."""
        return self.emit_as(self.fresh(operator), operator, *inputs, **attributes)

    def emit_as(self, output: str, operator: str, *inputs: str, **attributes: Attribute) -> str:
        """Append a node whose one output has a given name."""
        node = helper.make_node(operator, list(inputs), [output], name=output)
        node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        self.nodes.append(node)
        return output

    def fresh(self, hint: str) -> str:
        """A name that nothing has yet."""
        while True:
            name = f"{hint}.{next(self._counter)}"
            if name not in self._taken:
                self._taken.add(name)
                return name

    def constant(self, value: NDArray[Any]) -> str:
        """The name of a constant tensor."""
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self._constants:
            self._constants[key] = numpy_helper.from_array(np.asarray(value, order="C"), self.fresh("constant"))
        return self._constants[key].name

    def scalar(self, value: float) -> str:
        """A float32 scalar constant."""
        return self.constant(np.array(value, dtype=np.float32))

    def integers(self, values: Sequence[int]) -> str:
        """A one-dimensional int64 constant: a shape, axes, starts."""
        return self.constant(np.array(values, dtype=np.int64))

    def reshape(self, value: str, shape: Sequence[int]) -> str:
        """``value`` in a shape where 0 keeps a dimension and -1 is computed."""
        return self.emit("Reshape", value, self.integers(shape))

    def reshape_like(self, value: str, model: str) -> str:
        """``value`` in the run-time shape of ``model``."""
        return self.emit("Reshape", value, self.emit("Shape", model))

    def sum_over(self, value: str, axes: Sequence[int], *, keepdims: int) -> str:
        """``value`` summed over axes."""
        return self.emit("ReduceSum", value, self.integers(axes), keepdims=keepdims)

    def ones(self, like: str) -> str:
        """(n,): ones, n the first dimension of a value; nodes are written once a value."""
        if like not in self._ones:
            one = numpy_helper.from_array(np.ones(1, np.float32))
            self._ones[like] = self.emit("ConstantOfShape", self.emit("Shape", like, start=0, end=1), value=one)
        return self._ones[like]

    def branch(self) -> "GraphBuilder":
        """A builder of nodes for a branch of an `If`: names and constants are shared, nodes are its own."""
        inner = GraphBuilder(())
        inner._taken, inner._constants, inner._counter = self._taken, self._constants, self._counter
        return inner

    def rename(self, value: str) -> str:
        """Give a value that a node has a fresh name, and tell it; who reads it already is not told."""
        fresh = self.fresh(value)
        for node in self.nodes:
            if value in node.output:
                node.output[:] = [fresh if name == value else name for name in node.output]
                node.name = fresh
        return fresh

    @property
    def constants(self) -> list[onnx.TensorProto]:
        """The constants, as initialisers."""
        return list(self._constants.values())


def needed_nodes(nodes: Sequence[onnx.NodeProto], outputs: Iterable[str]) -> list[onnx.NodeProto]:
    """The nodes that the outputs depend on, in their order."""
    needed = set(outputs)
    kept = []
    for node in reversed(nodes):
        if needed.intersection(node.output):
            needed.update(read_by(node))
            kept.append(node)
    return kept[::-1]


def read_by(node: onnx.NodeProto) -> set[str]:
    """The values that a node reads, also inside its branches."""
    names = set(node.input)
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            names.update(value.name for value in graph.output)
            names.update(*(read_by(inner) for inner in graph.node))
    return names
