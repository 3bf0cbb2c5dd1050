"""Long sums beside torch's own error."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edge_agent.model.session import Session
from server_bridge.bundles.gradients.graph import GraphBuilder
from server_bridge.bundles.gradients.sums import by_channel


def summed(x: Any) -> Any:
    graph = GraphBuilder({"x"})
    total = by_channel(graph, "x", x.shape[2:])
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)]
    outputs = [helper.make_tensor_value_info(total, TensorProto.FLOAT, [x.shape[1]])]
    proto = helper.make_graph(graph.nodes, "sum", inputs, outputs, graph.constants)
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    return Session("sum", model.SerializeToString(), {}, threads=1).run({"x": x})[total]


@pytest.mark.oracle
@pytest.mark.parametrize("shape", [(32, 8, 96, 96), (17, 1, 50, 50), (32, 16, 8, 8), (5, 3, 4000), (7, 3)])
def test_error_is_at_most_twice_torchs(shape: tuple[int, ...]) -> None:
    import torch

    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    axes = (0, *range(2, len(shape)))
    exact = x.astype(np.float64).sum(axes)
    own = np.linalg.norm(torch.tensor(x).sum(axes).numpy() - exact)
    assert np.linalg.norm(summed(x) - exact) <= max(2 * own, 1e-7 * np.sqrt(x.size))
