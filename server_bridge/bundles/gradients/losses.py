"""Losses, their mean over the batch and its gradient."""

from dataclasses import dataclass

import numpy as np
import onnx

from edge_agent.wire.manifest import LabelFreeLossName, LossName
from server_bridge.bundles.gradients.graph import GraphBuilder

LOSS = "loss"


@dataclass(frozen=True)
class Objective:
    """What a training graph minimises: a loss and its options."""

    loss: LossName | LabelFreeLossName


def cross_entropy(graph: GraphBuilder, logits: str, label: str, classes: int) -> str:
    """Write the mean cross-entropy as ``loss``; the gradient is (softmax - one-hot) / n.

    Args:
        graph: where to write.
        logits: (n, classes) float32.
        label: (n,) int64 in 0..classes-1, checked by the caller.
        classes: how many.

    Returns: the gradient's name, (n, classes).
    """
    log_probabilities = graph.emit("LogSoftmax", logits, axis=-1)
    on_off = graph.constant(np.array([0, 1], dtype=np.float32))
    one_hot = graph.emit("OneHot", label, graph.constant(np.array(classes, dtype=np.int64)), on_off, axis=-1)
    count = _count(graph, label)
    total = graph.sum_over(graph.emit("Mul", one_hot, log_probabilities), [0, 1], keepdims=0)
    graph.emit_as(LOSS, "Div", graph.emit("Neg", total), count)
    excess = graph.emit("Sub", graph.emit("Exp", log_probabilities), one_hot)
    return graph.emit("Div", excess, count)


def mean_squared_error(graph: GraphBuilder, value: str, label: str, rank: int) -> str:
    """Write the mean squared error as ``loss``; the gradient is 2 (value - label) / n.

    Args:
        graph: where to write.
        value: (n, ...) float32.
        label: float32 with as many elements.
        rank: of ``value``.

    Returns: the gradient's name, shaped as ``value``.
    """
    difference = graph.emit("Sub", value, graph.reshape_like(label, value))
    count = _count(graph, value)
    total = graph.sum_over(graph.emit("Mul", difference, difference), list(range(rank)), keepdims=0)
    graph.emit_as(LOSS, "Div", total, count)
    return graph.emit("Mul", difference, graph.emit("Div", graph.scalar(2.0), count))


def _count(graph: GraphBuilder, value: str) -> str:
    return graph.emit("Cast", graph.emit("Size", value), to=onnx.TensorProto.FLOAT)
