"""An operator's gradients here and in torch, for a given upstream gradient: no loss between."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edge_agent.model.session import Session
from server_bridge.bundles.gradients.forward import Forward
from server_bridge.bundles.gradients.graph import GraphBuilder, needed_nodes
from server_bridge.bundles.gradients.reverse import differentiate

Array = NDArray[Any]
TOLERANCE = 2e-5
"""Of a gradient, relative to the tensor's largest."""
ROUNDING = 1e-6
"""L2 error, relative to the tensor's, that is float32's own and no matter of the way."""


def operator_model(
    operator: str,
    x: Array,
    tensors: Mapping[str, Array],
    *,
    opset: int = 17,
    extra_outputs: int = 0,
    **attributes: Any,
) -> onnx.ModelProto:
    """One node from ``x`` (free batch) and initialisers, in their order, to ``y``."""
    outputs = ["y", *(f"y{number}" for number in range(extra_outputs))]
    node = helper.make_node(operator, ["x", *tensors], outputs, name="node")
    node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *x.shape[1:]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value, order="C"), name) for name, value in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


class OperatorGraph:
    """A model's output and gradients as the rules write them, run by onnxruntime.

    Args:
        model: from ``x`` to ``y``.
        wanted: values to differentiate by: initialisers, or ``x``.
        rewrite: changes the forward nodes before, as a pass of the training graph does.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        wanted: Sequence[str],
        *,
        threads: int = 1,
        rewrite: Callable[[GraphBuilder, Forward, Sequence[onnx.NodeProto]], Mapping[str, str]] | None = None,
    ) -> None:
        self.wanted = list(wanted)
        forward = Forward.read(model)
        graph = GraphBuilder({"x", "y", "dy", *(t.name for t in model.graph.initializer)})
        nodes = list(model.graph.node)
        graph.nodes.extend(nodes)
        extra = rewrite(graph, forward, nodes) if rewrite else {}
        found = differentiate(graph, forward, nodes, "y", "dy", wanted)
        names = [*(found[name] for name in wanted), *extra.values()]
        outputs = ["y", *dict.fromkeys(names)]
        self.nodes = needed_nodes(graph.nodes, outputs)
        inputs = [*model.graph.input, helper.make_tensor_value_info("dy", TensorProto.FLOAT, forward.shapes["y"])]
        values = [helper.make_empty_tensor_value_info(name) for name in outputs]
        tensors = [*model.graph.initializer, *graph.constants]
        self.proto = helper.make_model(
            helper.make_graph(self.nodes, "gradients", inputs, values, tensors),
            opset_imports=model.opset_import,
            ir_version=model.ir_version,
        )
        self._found, self._extra, self._shape = found, extra, forward.shapes["y"]
        self._session = Session("gradients", self.proto.SerializeToString(), {}, threads=threads)

    def output_shape(self, x: Array) -> tuple[int, ...]:
        """Of ``y``, for as many samples as ``x`` has."""
        return tuple(len(x) if size is None else size for size in self._shape)

    def run(self, x: Array, upstream: Array) -> dict[str, Array]:
        """``y``, the gradients by the value's name, and what the rewriting pass added."""
        raw = self._session.run({"x": x, "dy": upstream})
        gradients = {name: raw[self._found[name]] for name in self.wanted}
        return {"y": raw["y"], **gradients, **{key: raw[name] for key, name in self._extra.items()}}


Torch = Callable[[Any, Mapping[str, Any]], Any]
"""torch's forward pass: of x and the tensors by name."""


def torch_gradients(
    twin: Torch, x: Array, tensors: Mapping[str, Array], upstream: Array, dtype: str
) -> dict[str, Array]:
    """``y`` and the gradients of every float tensor and of ``x``."""
    import torch

    torch.set_num_threads(1)
    kind = getattr(torch, dtype)
    leaves: dict[str, Any] = {
        name: torch.tensor(value, dtype=kind, requires_grad=True) for name, value in tensors.items()
    }
    image: Any = torch.tensor(x, dtype=kind, requires_grad=True)
    y: Any = twin(image, leaves)
    y.backward(torch.tensor(upstream, dtype=kind).reshape(y.shape))
    found = {name: grad.numpy() for name, leaf in leaves.items() if (grad := leaf.grad) is not None}
    return {"y": y.detach().numpy(), "x": image.grad.numpy(), **found}


def assert_as_torch(
    model: onnx.ModelProto, twin: Torch, x: Array, tensors: Mapping[str, Array], *, amplitude: float = 0.0
) -> None:
    """Assert that y and all gradients are torch's: near float64's, and hardly farther from them than float32's own.

    No element is off by more than 2e-5 of the tensor's largest; the L2 error is at most twice torch float32's, or
    float32's rounding. ``amplitude``: of terms that cancel in a gradient, whose rounding remains.
    """
    upstream = _upstream(twin, x, tensors)
    _compare(model, twin, (x, tensors, upstream), dict.fromkeys(("y", "x", *tensors), amplitude))


def assert_products_as_torch(model: onnx.ModelProto, twin: Torch, x: Array, tensors: Mapping[str, Array]) -> None:
    """The same for sums of products, whose terms' size is known: the root of the sum of their squares."""
    upstream = _upstream(twin, x, tensors)
    squares = torch_gradients(
        twin, np.square(x), {name: np.square(value) for name, value in tensors.items()}, np.square(upstream), "float64"
    )
    _compare(model, twin, (x, tensors, upstream), {n: float(np.sqrt(v.max(initial=0))) for n, v in squares.items()})


def _compare(
    model: onnx.ModelProto,
    twin: Torch,
    values: tuple[Array, Mapping[str, Array], Array],
    amplitudes: Mapping[str, float],
) -> None:
    x, tensors, upstream = values
    found = OperatorGraph(model, ["x", *tensors]).run(x, upstream)
    exact = torch_gradients(twin, x, tensors, upstream, "float64")
    narrow = torch_gradients(twin, x, tensors, upstream, "float32")
    for name in ("y", "x", *tensors):
        assert_near(name, found[name], exact[name], narrow[name], amplitudes[name])


def _upstream(twin: Torch, x: Array, tensors: Mapping[str, Array]) -> Array:
    """Normal values in the shape of y."""
    import torch

    shape = tuple(twin(torch.tensor(x), {name: torch.tensor(value) for name, value in tensors.items()}).shape)
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


def assert_near(name: str, found: Array, exact: Array, narrow: Array, amplitude: float = 0.0) -> None:
    """One tensor beside torch's float64 and float32."""
    assert found.shape == exact.shape, f"{name}: shape {found.shape}, torch's is {exact.shape}"
    error, largest = np.abs(found - exact), np.abs(exact).max(initial=0.0)
    rest = ROUNDING * amplitude + 1e-30
    assert error.max(initial=0.0) <= TOLERANCE * largest + rest, f"{name}: off by {error.max()}, largest is {largest}"
    own = float(np.sqrt(np.square(narrow - exact).sum()))
    allowed = max(2 * own, ROUNDING * float(np.sqrt(np.square(exact).sum())), rest * np.sqrt(exact.size))
    assert float(np.sqrt(np.square(error).sum())) <= allowed, f"{name}: L2 error beyond twice torch's own {own}"
