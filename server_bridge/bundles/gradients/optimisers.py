"""Optimisers: from a gradient to the next parameters and state, as torch defines them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import onnx

from edge_agent.wire.manifest import OptimiserName
from server_bridge.bundles.gradients.graph import GraphBuilder

ADAM_BETA_1, ADAM_BETA_2, ADAM_EPSILON = 0.9, 0.999, 1e-8
LEARNING_RATE, STEP, MOMENTUM, WEIGHT_DECAY = "learning_rate", "step", "momentum", "weight_decay"
DEFAULTS: Mapping[str, float] = MappingProxyType({MOMENTUM: 0.9, WEIGHT_DECAY: 0.01})
"""Of the scalars that nobody need set: torch's own for AdamW's decay."""


@dataclass(frozen=True)
class Optimiser:
    """What an optimiser needs and does.

    Args:
        state: names of its state tensors, one a trainable tensor, zero at first.
        scalars: float32 graph inputs.
        write: appends the update of the named gradients (by tensor), whose outputs are ``out.<t>`` and
            ``out.<state>.<t>``.
    """

    state: tuple[str, ...]
    scalars: tuple[str, ...]
    write: Callable[[GraphBuilder, Mapping[str, str]], None]


def _sgd(graph: GraphBuilder, gradients: Mapping[str, str]) -> None:
    """Plain descent: t = t - rate g."""
    for name, gradient in gradients.items():
        graph.emit_as(f"out.{name}", "Sub", name, graph.emit("Mul", gradient, LEARNING_RATE))


def _momentum(graph: GraphBuilder, gradients: Mapping[str, str]) -> None:
    """Heavy ball: u = momentum u + g, t = t - rate u.

    Source: Polyak 1964; torch.optim.SGD without dampening.
    """
    for name, gradient in gradients.items():
        kept = graph.emit("Mul", f"momentum.{name}", MOMENTUM)
        velocity = graph.emit_as(f"out.momentum.{name}", "Add", kept, gradient)
        graph.emit_as(f"out.{name}", "Sub", name, graph.emit("Mul", velocity, LEARNING_RATE))


def _adamw(graph: GraphBuilder, gradients: Mapping[str, str]) -> None:
    """Adam after t = t - rate weight_decay t, as torch.optim.AdamW orders it.

    Source: Loshchilov and Hutter 2019, algorithm 2.
    """
    kept = graph.emit("Sub", graph.scalar(1.0), graph.emit("Mul", LEARNING_RATE, WEIGHT_DECAY))
    _adam_from({name: graph.emit("Mul", name, kept) for name in gradients}, graph, gradients)


def _adam(graph: GraphBuilder, gradients: Mapping[str, str]) -> None:
    """Adam with bias correction.

    Source: Kingma and Ba 2015, algorithm 1, as torch.optim.Adam means it. The corrections are computed
        in float64: 1 - 0.999 is off by 1e-5 in float32.
    """
    _adam_from({name: name for name in gradients}, graph, gradients)


def _adam_from(starts: Mapping[str, str], graph: GraphBuilder, gradients: Mapping[str, str]) -> None:
    """The states are torch's over 1 - beta: m = beta1 m + g, v = beta2 v + g^2.

    What that leaves out is one factor for the rate and one for epsilon: ten passes over a tensor, not thirteen
    (measured: a fifth to a quarter less time).
    """
    rate, epsilon = _bias_corrections(graph)
    for name, gradient in gradients.items():
        first = _moving_sum(graph, f"m.{name}", gradient, ADAM_BETA_1)
        second = _moving_sum(graph, f"v.{name}", graph.emit("Mul", gradient, gradient), ADAM_BETA_2)
        scale = graph.emit("Add", graph.emit("Sqrt", second), epsilon)
        change = graph.emit("Mul", graph.emit("Div", first, scale), rate)
        graph.emit_as(f"out.{name}", "Sub", starts[name], change)


def _bias_corrections(graph: GraphBuilder) -> tuple[str, str]:
    """The rate and the epsilon of moving sums, float32 scalars.

    With k = sqrt((1 - beta2^step) / (1 - beta2)): k epsilon, and k learning_rate (1 - beta1) / (1 - beta1^step).
    """
    step = graph.emit("Cast", STEP, to=onnx.TensorProto.DOUBLE)
    rate = graph.emit("Cast", LEARNING_RATE, to=onnx.TensorProto.DOUBLE)
    first, second = (_correction(graph, beta, step) for beta in (ADAM_BETA_1, ADAM_BETA_2))
    root = graph.emit("Sqrt", second)
    wide = (
        graph.emit("Mul", graph.emit("Div", rate, first), root),
        graph.emit("Mul", root, graph.constant(np.array(ADAM_EPSILON))),
    )
    narrow = [graph.emit("Cast", value, to=onnx.TensorProto.FLOAT) for value in wide]
    return narrow[0], narrow[1]


def _correction(graph: GraphBuilder, beta: float, step: str) -> str:
    """(1 - beta^step) / (1 - beta), float64."""
    missing = graph.emit("Sub", graph.constant(np.array(1.0)), graph.emit("Pow", graph.constant(np.array(beta)), step))
    return graph.emit("Div", missing, graph.constant(np.array(1.0 - beta)))


def _moving_sum(graph: GraphBuilder, state: str, value: str, beta: float) -> str:
    kept = graph.emit("Mul", state, graph.scalar(beta))
    return graph.emit_as(f"out.{state}", "Add", kept, value)


OPTIMISERS: Mapping[OptimiserName, Optimiser] = MappingProxyType(
    {
        "sgd": Optimiser((), (LEARNING_RATE,), _sgd),
        "momentum": Optimiser(("momentum",), (LEARNING_RATE, MOMENTUM), _momentum),
        "adam": Optimiser(("m", "v"), (LEARNING_RATE, STEP), _adam),
        "adamw": Optimiser(("m", "v"), (LEARNING_RATE, STEP, WEIGHT_DECAY), _adamw),
    }
)
