"""The guarded step: clipped, capped, and not taken where it would not be finite.

Everything that changes is computed in one branch of an `If`, whose other branch gives it back as it was: that costs
less than choosing tensor by tensor (measured on a dense net of 10,000 parameters: 4 us against 16, a `Where` for each).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import TensorProto, helper

from server_bridge.bundles.gradients.graph import GraphBuilder
from server_bridge.bundles.gradients.optimisers import LEARNING_RATE, WEIGHT_DECAY, Movement, Optimiser

CLIP_NORM, UPDATE_NORM_CAP = "clip_norm", "update_norm_cap"
GRADIENT_NORM, UPDATE_NORM, SKIPPED = "gradient_norm", "update_norm", "skipped"
REPORTS = (GRADIENT_NORM, UPDATE_NORM, SKIPPED)
CLIP_EPSILON = 1e-6
"""Added to the norm that divides, as torch.nn.utils.clip_grad_norm_ does."""
FINITE_BELOW = 1e17
"""Norm of the gradient plus learning rate at most: from here on the square of a gradient, summed by Adam a thousand
times over, would leave float32. Below it no state and no update can."""


@dataclass(frozen=True)
class Step:
    """What a step starts from.

    Args:
        gradients: by tensor.
        renewed: what else changes with the step, by graph input: running statistics.
        decayed: whether weight_decay x t is added to the gradient of t, after the clipping as torch has it.
        counted: a scalar, 0 where nothing in the batch counts; None: something always does.
    """

    gradients: Mapping[str, str]
    renewed: Mapping[str, str]
    decayed: bool = False
    counted: str | None = None


def write_guarded(
    graph: GraphBuilder, step: Step, optimiser: Optimiser, shapes: Mapping[str, Sequence[int | None]]
) -> None:
    """Write the step: ``out.<t>``, ``out.<state>.<t>``, ``out.<statistic>`` and the `REPORTS`.

    Where the gradient's norm is not finite (or 1e17 or more), or nothing in the batch counts, every output is its
    input and ``skipped`` is 1. Else the gradients are multiplied with min(1, clip_norm / (norm + 1e-6)), and the
    update with min(1, update_norm_cap / its norm); a bound of 0 is none.

    Args:
        graph: where to write.
        step: see `Step`.
        optimiser: see `Optimiser`.
        shapes: of what changes, by graph input.

    Source: Pascanu, Mikolov and Bengio 2013, algorithm 1; torch.nn.utils.clip_grad_norm_.
    """
    norm = graph.emit_as(GRADIENT_NORM, "Sqrt", _square_sum(graph, list(step.gradients.values())))
    fits = graph.emit("Less", graph.emit("Add", norm, LEARNING_RATE), graph.scalar(FINITE_BELOW))
    if step.counted is not None:
        fits = graph.emit("And", fits, graph.emit("Greater", step.counted, graph.scalar(0.0)))
    taken = graph.branch()
    changed, update_norm = _taken(taken, step, optimiser, norm)
    left = graph.branch()
    kept = {name: left.emit("Identity", name) for name in changed}
    ends = [f"out.{name}" for name in changed] + [UPDATE_NORM, SKIPPED]
    sizes: list[Sequence[int | None]] = [shapes[name] for name in changed]
    branches = {
        "then_branch": _graph(taken, [*changed.values(), update_norm, _value(taken, 0.0)], [*sizes, (), ()]),
        "else_branch": _graph(left, [*kept.values(), _value(left, 0.0), _value(left, 1.0)], [*sizes, (), ()]),
    }
    graph.nodes.append(helper.make_node("If", [fits], ends, name=SKIPPED, **branches))


def _taken(graph: GraphBuilder, step: Step, optimiser: Optimiser, norm: str) -> tuple[dict[str, str], str]:
    """The renewed values by graph input, and the norm of the update."""
    scale = _at_most(graph, CLIP_NORM, graph.emit("Add", norm, graph.scalar(CLIP_EPSILON)))
    if optimiser.state or step.decayed:
        gradients = {name: graph.emit("Mul", gradient, scale) for name, gradient in step.gradients.items()}
        movement = optimiser.move(graph, _decayed(graph, gradients) if step.decayed else gradients)
        length = graph.emit("Sqrt", _square_sum(graph, list(movement.directions.values())))
        length = graph.emit("Mul", length, movement.rate)
    else:  # the clipping is one factor of the rate, and the norm is known
        plain = optimiser.move(graph, step.gradients)
        movement = Movement(plain.directions, plain.states, graph.emit("Mul", plain.rate, scale))
        length = graph.emit("Mul", norm, movement.rate)
    held = _at_most(graph, UPDATE_NORM_CAP, length)
    rate = graph.emit("Mul", movement.rate, held)
    moved = {
        name: graph.emit("Sub", name, graph.emit("Mul", direction, rate))
        for name, direction in movement.directions.items()
    }
    renewed = {name: graph.emit("Identity", value) for name, value in step.renewed.items()}
    return {**moved, **renewed, **movement.states}, graph.emit("Mul", length, held)


def _at_most(graph: GraphBuilder, bound: str, length: str) -> str:
    """min(1, bound / length), or 1 where the bound is 0."""
    factor = graph.emit("Min", graph.emit("Div", bound, length), graph.scalar(1.0))
    return graph.emit("Where", graph.emit("Greater", bound, graph.scalar(0.0)), factor, graph.scalar(1.0))


def _decayed(graph: GraphBuilder, gradients: Mapping[str, str]) -> dict[str, str]:
    return {
        name: graph.emit("Add", gradient, graph.emit("Mul", name, WEIGHT_DECAY)) for name, gradient in gradients.items()
    }


def _square_sum(graph: GraphBuilder, values: Sequence[str]) -> str:
    parts = [graph.emit("ReduceSumSquare", value, keepdims=0) for value in values]
    return parts[0] if len(parts) == 1 else graph.emit("Sum", *parts)


def _value(graph: GraphBuilder, value: float) -> str:
    return graph.emit("Identity", graph.scalar(value))


def _graph(branch: GraphBuilder, outputs: Sequence[str], sizes: Sequence[Sequence[int | None]]) -> onnx.GraphProto:
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, size) for name, size in zip(outputs, sizes, strict=True)
    ]
    return helper.make_graph(branch.nodes, "branch", [], values)
