"""Gradients of a training graph beside central differences of the forward graph in float64."""

import math
from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from edge_agent.drift.losses import LossName, sample_losses
from edge_agent.model.session import Session
from server_bridge.bundles.checks import for_training
from server_bridge.bundles.gradients.expansion import expanded
from server_bridge.bundles.gradients.forward import Forward
from server_bridge.bundles.gradients.objective import Objective
from server_bridge.bundles.gradients.training_graph import Plan, training_graph
from tests.bundles.nets import initialisers

Array = NDArray[Any]
STEP = 1e-6
RATE = 0.1
ELEMENTS_MAX = 60
"""Elements of a tensor that are checked; more are sampled."""


class Stepper:
    """A training graph of a model, whose gradients are read off: momentum's first velocity is the gradient."""

    def __init__(self, model: onnx.ModelProto, trainable: Sequence[str], loss: LossName, *, threads: int = 1) -> None:
        plan = Plan("momentum", trainable, Objective(loss), "momentum")
        forward = Forward.read(expanded(for_training(model), trainable))
        made = training_graph(forward, model.graph.output[0].name, plan)
        self.model, self._trainable, self._input = made.model, trainable, model.graph.input[0].name
        self._session = Session("test", made.model.SerializeToString(), {}, threads=threads)
        given = initialisers(model)
        scalars = {name: made.spec.defaults.get(name, RATE) for name in made.spec.scalars}
        self._feeds: dict[str, Array] = {name: np.array(value, dtype=np.float32) for name, value in scalars.items()}
        for name in trainable:
            self._feeds |= {name: given[name], f"momentum.{name}": np.zeros_like(given[name])}

    def at(self, threads: int) -> "Stepper":
        """The same graph at another number of threads."""
        again = copy(self)
        again._session = Session("test", self.model.SerializeToString(), {}, threads=threads)
        return again

    def gradients(self, x: Array, labels: Array) -> tuple[float, dict[str, Array]]:
        """The loss and its gradients."""
        outputs = self._session.run({self._input: x, "label": labels, **self._feeds})
        return float(outputs["loss"]), {name: outputs[f"out.momentum.{name}"] for name in self._trainable}


def gradients_of(
    model: onnx.ModelProto, trainable: Sequence[str], loss: LossName, x: Array, labels: Array, *, threads: int = 1
) -> tuple[float, dict[str, Array]]:
    """The loss and its gradients as the training graph has them."""
    return Stepper(model, trainable, loss, threads=threads).gradients(x, labels)


def check_gradients(
    model: onnx.ModelProto,
    trainable: Sequence[str],
    loss: LossName,
    x: Array,
    labels: Array,
    *,
    tolerance: float = 1e-4,
) -> None:
    """Assert that loss and gradients agree with the reference evaluator's, relative to a tensor's largest."""
    value, gradients = gradients_of(model, trainable, loss, x, labels)
    wide = _Wide(model, loss, x, labels)
    assert value == np.float32(value)
    assert abs(value - wide.loss({})) <= 1e-5 * max(1.0, abs(value))
    rng = np.random.default_rng(0)
    for name in trainable:
        positions = _positions(gradients[name], rng)
        expected = np.array([wide.slope(name, int(position)) for position in positions])
        found = gradients[name].reshape(-1)[positions]
        largest = np.abs(expected).max()
        assert largest > 1e-7, f"{name}: nothing to compare"
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * largest, err_msg=name)


def _positions(gradient: Array, rng: np.random.Generator) -> Array:
    """All elements, or some at random and the largest, which may be few in an embedding."""
    if gradient.size <= ELEMENTS_MAX:
        return np.arange(gradient.size)
    half = ELEMENTS_MAX // 2
    largest = np.argsort(-np.abs(gradient), axis=None)[:half]
    return np.concatenate((largest, rng.permutation(gradient.size)[:half]))


_erf = np.vectorize(math.erf, otypes=["d"])


class Erf(OpRun):
    """The reference evaluator's own rounds to float32."""

    def _run(self, x: Array) -> tuple[Array]:
        return (_erf(x),)


class Gelu(OpRun):
    """The reference evaluator's own rounds to float32."""

    def _run(self, x: Array, approximate: str | None = None) -> tuple[Array]:
        if approximate == "tanh":
            return (0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),)
        return (0.5 * x * (1 + _erf(x / math.sqrt(2))),)


class _Wide:
    """The forward graph in float64."""

    def __init__(self, model: onnx.ModelProto, loss: LossName, x: Array, labels: Array) -> None:
        self._loss, self._labels = loss, labels
        self._x = x.astype(np.float64) if x.dtype == np.float32 else x
        wide = onnx.ModelProto()
        wide.CopyFrom(model)
        self._weights = {n: v.astype(np.float64) for n, v in initialisers(model).items() if v.dtype == np.float32}
        integers = [t for t in wide.graph.initializer if t.name not in self._weights]
        del wide.graph.initializer[:]
        wide.graph.initializer.extend(integers)
        for value in (*wide.graph.input, *wide.graph.output):
            if value.type.tensor_type.elem_type == TensorProto.FLOAT:
                value.type.tensor_type.elem_type = TensorProto.DOUBLE
        for node in wide.graph.node:
            for attribute in node.attribute:
                if node.op_type == "Cast" and attribute.i == TensorProto.FLOAT:
                    attribute.i = TensorProto.DOUBLE
                if attribute.name == "stash_type":
                    attribute.i = TensorProto.DOUBLE
                if attribute.name == "value" and attribute.t.data_type == TensorProto.FLOAT:
                    attribute.t.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(attribute.t).astype(np.float64)))
        for name, value in self._weights.items():
            wide.graph.input.append(onnx.helper.make_tensor_value_info(name, TensorProto.DOUBLE, value.shape))
        self._evaluator = ReferenceEvaluator(wide, new_ops=[Erf, Gelu])

    def loss(self, changed: dict[str, Array]) -> float:
        outputs = self._evaluator.run(["y"], {"x": self._x, **self._weights, **changed})
        output: Array = np.asarray(next(iter(outputs)))
        assert output.dtype == np.float64
        return float(sample_losses(self._loss, output, self._labels).mean())

    def slope(self, name: str, position: int) -> float:
        ends = []
        for sign in (1, -1):
            moved = self._weights[name].copy()
            moved.reshape(-1)[position] += sign * STEP
            ends.append(self.loss({name: moved}))
        return (ends[0] - ends[1]) / (2 * STEP)
