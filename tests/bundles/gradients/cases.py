"""Small graphs, each with one operator in the middle."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper

from edge_agent.model.session import Session
from tests.bundles.gradients.differences import Array
from tests.bundles.nets import model_of

N = 3


@dataclass(frozen=True)
class Case:
    """Nodes from ``h`` to ``z``; ``h`` is the input under a trainable scale, so that gradients pass through."""

    name: str
    shape: tuple[int, ...]
    nodes: list[onnx.NodeProto]
    tensors: dict[str, tuple[int, ...]] = field(default_factory=dict)
    frozen: dict[str, Array] = field(default_factory=dict)
    opset: int = 17


def node(operator: str, inputs: str = "h", output: str = "z", *, name: str = "", **attributes: Any) -> onnx.NodeProto:
    """A node; ``-`` stands for an input that is not given."""
    names = [given.replace("-", "") for given in inputs.split()]
    drawn = helper.make_node(operator, names, output.split(), name=name)
    drawn.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
    return drawn


def ints(*values: int) -> Array:
    """Sizes, axes, bounds."""
    return np.array(values, dtype=np.int64)


def assembled(case: Case) -> tuple[onnx.ModelProto, list[str], Array, Array]:
    """The case's model with its scale below and a Flatten above; trainable names, input and labels."""
    rng = np.random.default_rng(sum(map(ord, case.name)))
    tensors = {"scale": (1, *case.shape), **case.tensors}
    weights = {name: np.asarray(rng.normal(size=shape), dtype=np.float32) for name, shape in tensors.items()}
    nodes = [node("Mul", "x scale", "h"), *case.nodes, node("Flatten", "z", "y")]
    model = model_of(nodes, weights | case.frozen, shape=case.shape, output=None, opset=case.opset)
    x = rng.normal(size=(N, *case.shape)).astype(np.float32)
    classes = Session(case.name, model.SerializeToString(), {}, threads=1).run({"x": x})["y"].shape[1]
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, ["n", classes]))
    return model, list(tensors), x, rng.integers(0, classes, N)
