"""Gradients of a few nodes, of any shapes and without a batch, beside torch's in float64."""

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edge_agent.model.session import Session
from server_bridge.bundles.gradients.expansion import expanded
from server_bridge.bundles.gradients.forward import Forward
from server_bridge.bundles.gradients.graph import GraphBuilder
from server_bridge.bundles.gradients.reverse import differentiate
from tests.bundles.gradients.differences import Array


def gradients_by_graph(
    nodes: list[onnx.NodeProto], trained: dict[str, Array], frozen: dict[str, Array]
) -> dict[str, Array]:
    """The gradients of ``sum(z * g)``; ``z`` and ``g`` may have any shape, without a batch."""
    tensors = [numpy_helper.from_array(value, name) for name, value in (trained | frozen).items()]
    row = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    graph = helper.make_graph(
        nodes, "any", [row], [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)], tensors
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    model = expanded(model, list(trained))
    forward = Forward.read(model)
    names = {name for drawn in model.graph.node for name in drawn.output} | {tensor.name for tensor in tensors} | {"x"}
    builder = GraphBuilder(names)
    builder.nodes.extend(model.graph.node)
    found = differentiate(builder, forward, list(builder.nodes), "z", "g", list(trained))
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in found.values()]
    every = [*model.graph.initializer, *builder.constants]
    backward = helper.make_graph(builder.nodes, "back", [row], outputs, every)
    made = helper.make_model(backward, opset_imports=model.opset_import, ir_version=10)
    values = Session("any", made.SerializeToString(), {}, threads=1).run({"x": np.zeros(2, dtype="f4")})
    return {name: values[gradient] for name, gradient in found.items()}


def assert_as_torch(
    nodes: list[onnx.NodeProto],
    trained: dict[str, Array],
    frozen: dict[str, Array],
    forward: Any,
    rng: np.random.Generator,
) -> None:
    """The gradients of every trained tensor, each of its own shape.

    Args:
        nodes: from the tensors to ``z``.
        trained: float32 tensors by name.
        frozen: further tensors.
        forward: the same in torch, of torch and the trained tensors.
        rng: draws the gradient of ``z``.
    """
    import torch

    leaves = {name: torch.tensor(value, dtype=torch.float64).requires_grad_() for name, value in trained.items()}
    found = forward(torch, leaves)
    upstream = rng.normal(size=tuple(found.shape)).astype(np.float32)
    (found * torch.tensor(upstream, dtype=torch.float64)).sum().backward()
    gradients = gradients_by_graph(nodes, trained, {**frozen, "g": upstream})
    for name, leaf in leaves.items():
        expected = np.asarray(leaf.grad)
        assert gradients[name].shape == expected.shape
        atol = 1e-5 * max(np.abs(expected).max(initial=0), 1)
        np.testing.assert_allclose(gradients[name], expected, rtol=0, atol=atol, err_msg=name)
