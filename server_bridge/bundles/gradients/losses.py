"""Losses of labelled samples, their mean over the batch and its gradient."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx

from server_bridge.bundles.gradients.graph import GraphBuilder

LOSS, LABEL, CLASS_WEIGHT = "loss", "label", "class_weight"
TABLE_MAX = 64
"""Classes at most whose one-hot rows are a constant of the graph: 16 kB."""
_LEAST = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Weighing:
    """How the samples of a classification count; as torch.nn.CrossEntropyLoss has it.

    Args:
        class_weights: one a class, not negative; a batch's mean is divided by the weights of its labels.
            Empty: all equal.
        smoothing: the share of each label that goes to all classes alike, in [0, 1).
        ignored: a label whose samples count for nothing; None: every sample counts.
        weights_at_run_time: the weights come as the graph input ``class_weight`` (classes,) instead.
    """

    class_weights: Sequence[float] = ()
    smoothing: float = 0.0
    ignored: int | None = None
    weights_at_run_time: bool = False

    @property
    def plain(self) -> bool:
        """Whether every sample counts once, for its label alone."""
        return not self.weighted and self.smoothing == 0.0 and self.ignored is None

    @property
    def weighted(self) -> bool:
        """Whether classes have weights."""
        return bool(self.class_weights) or self.weights_at_run_time


@dataclass(frozen=True)
class Gradient:
    """What a loss gives, beside its value.

    Args:
        name: of the gradient, shaped as what was differentiated.
        counted: a float32 scalar, 0 where nothing in the batch counts; None: something always does.
    """

    name: str
    counted: str | None = None


def cross_entropy(
    graph: GraphBuilder, logits: str, label: str, classes: int, weighing: Weighing | None = None
) -> Gradient:
    """Write the mean cross-entropy as ``loss``; the plain gradient is (softmax - one-hot) / n.

    Args:
        graph: where to write.
        logits: (n, classes) float32.
        label: (n,) int64 in 0..classes-1 or the ignored one, checked by the caller.
        classes: how many.
        weighing: of classes, labels and samples. With label weights w and smoothing e the target of class c is
            w_c ((1 - e) [c = label] + e / classes), and the sum is divided by that of w_label.

    Returns: the gradient, (n, classes).

    Source: torch.nn.CrossEntropyLoss with reduction "mean"; where no sample counts, its 0/0 is 0 here.
    """
    weighing = weighing or Weighing()
    log_probabilities = graph.emit("LogSoftmax", logits, axis=-1)
    if weighing.plain:
        target, count = _one_hot(graph, label, classes, None, hot=-1.0), _count(graph, label)
        total = graph.emit("ReduceSum", graph.emit("Mul", target, log_probabilities), keepdims=0)
        graph.emit_as(LOSS, "Div", total, count)
        return Gradient(graph.emit("Div", graph.emit("Add", graph.emit("Exp", log_probabilities), target), count))
    one_hot = _one_hot(graph, label, classes, weighing.ignored)
    target, counted = _targets(graph, one_hot, classes, weighing)
    count = _count(graph, label) if counted is None else graph.emit("Max", counted, graph.scalar(_LEAST))
    total = graph.emit("ReduceSum", graph.emit("Mul", target, log_probabilities), keepdims=0)
    graph.emit_as(LOSS, "Div", graph.emit("Neg", total), count)
    probabilities = graph.emit("Exp", log_probabilities)
    if counted is not None:
        probabilities = graph.emit("Mul", probabilities, graph.sum_over(target, [1], keepdims=1))
    return Gradient(graph.emit("Div", graph.emit("Sub", probabilities, target), count), counted)


def binary_cross_entropy(graph: GraphBuilder, logit: str, label: str, weighing: Weighing | None = None) -> Gradient:
    """Write the mean cross-entropy of two classes as ``loss``; the plain gradient is (sigmoid - label) / n.

    It is `cross_entropy` of the logits (0, z), and so are its options.

    Args:
        graph: where to write.
        logit: (n,) or (n, 1) float32, that of class 1.
        label: (n,) int64, 0 or 1 or the ignored one.
        weighing: see `cross_entropy`.

    Returns: the gradient, shaped as ``logit``.

    Source: torch.nn.BCEWithLogitsLoss.
    """
    weighing = weighing or Weighing()
    chance = graph.emit("Sigmoid", logit)
    if weighing.plain:
        one = graph.reshape_like(graph.emit("Cast", label, to=onnx.TensorProto.FLOAT), logit)
        count = _count(graph, label)
        losses = graph.emit("Sub", graph.emit("Softplus", logit), graph.emit("Mul", logit, one))
        graph.emit_as(LOSS, "Div", graph.emit("ReduceSum", losses, keepdims=0), count)
        return Gradient(graph.emit("Div", graph.emit("Sub", chance, one), count))
    target, counted = _targets(graph, _one_hot(graph, label, 2, weighing.ignored), 2, weighing)
    count = _count(graph, label) if counted is None else graph.emit("Max", counted, graph.scalar(_LEAST))
    zero, one = (graph.emit("Gather", target, graph.constant(np.array(k, dtype=np.int64)), axis=1) for k in (0, 1))
    zero, one = (graph.reshape_like(part, logit) for part in (zero, one))
    losses = graph.emit(
        "Add",
        graph.emit("Mul", zero, graph.emit("Softplus", logit)),
        graph.emit("Mul", one, graph.emit("Softplus", graph.emit("Neg", logit))),
    )
    graph.emit_as(LOSS, "Div", graph.emit("ReduceSum", losses, keepdims=0), count)
    expected = graph.emit("Mul", chance, graph.emit("Add", zero, one))
    return Gradient(graph.emit("Div", graph.emit("Sub", expected, one), count), counted)


def mean_squared_error(graph: GraphBuilder, value: str, label: str) -> Gradient:
    """Write the mean squared error as ``loss``; the gradient is 2 (value - label) / n.

    Args:
        graph: where to write.
        value: (n,) or (n, 1) float32.
        label: float32 with as many elements.

    Returns: the gradient, shaped as ``value``.
    """
    difference = graph.emit("Sub", value, graph.reshape_like(label, value))
    count = _mean(graph, graph.emit("Mul", difference, difference))
    return Gradient(graph.emit("Mul", difference, graph.emit("Div", graph.scalar(2.0), count)))


def mean_absolute_error(graph: GraphBuilder, value: str, label: str) -> Gradient:
    """Write the mean absolute error as ``loss``; the gradient is sign(value - label) / n, 0 where they are equal.

    Args, Returns: as `mean_squared_error`.
    """
    difference = graph.emit("Sub", value, graph.reshape_like(label, value))
    count = _mean(graph, graph.emit("Abs", difference))
    return Gradient(graph.emit("Div", graph.emit("Sign", difference), count))


def huber(graph: GraphBuilder, value: str, label: str, delta: float) -> Gradient:
    """Write Huber's mean loss as ``loss``; with d = value - label held to +-delta, the gradient is d / n.

    The loss of a sample is d (value - label - d / 2): half the square within delta, a line beyond.

    Args, Returns: as `mean_squared_error`.

    Source: Huber 1964; torch.nn.HuberLoss.
    """
    difference = graph.emit("Sub", value, graph.reshape_like(label, value))
    held = graph.emit("Clip", difference, graph.scalar(-delta), graph.scalar(delta))
    rest = graph.emit("Sub", difference, graph.emit("Mul", held, graph.scalar(0.5)))
    count = _mean(graph, graph.emit("Mul", held, rest))
    return Gradient(graph.emit("Div", held, count))


def _one_hot(graph: GraphBuilder, label: str, classes: int, ignored: int | None, hot: float = 1.0) -> str:
    """(n, classes); the row of an ignored label is zero, since it becomes a number past the last class.

    Of few classes the rows are read from a table: a quarter of OneHot's time (measured).
    """
    if ignored is not None:
        same = graph.emit("Equal", label, graph.constant(np.array(ignored, dtype=np.int64)))
        label = graph.emit("Where", same, graph.constant(np.array(classes, dtype=np.int64)), label)
    if classes <= TABLE_MAX:
        table = np.zeros((classes + (ignored is not None), classes), dtype=np.float32)
        np.fill_diagonal(table, hot)
        return graph.emit("Gather", graph.constant(table), label)
    on_off = graph.constant(np.array([0, hot], dtype=np.float32))
    return graph.emit("OneHot", label, graph.constant(np.array(classes, dtype=np.int64)), on_off, axis=-1)


def _targets(graph: GraphBuilder, one_hot: str, classes: int, weighing: Weighing) -> tuple[str, str | None]:
    """What each class's log-probability is multiplied with, and the divisor of the sum; None: the batch size."""
    weights = _class_weights(graph, weighing)
    target = one_hot if weights is None else graph.emit("Mul", one_hot, weights)
    needs_sum = weights is not None or weighing.ignored is not None
    counted = graph.sum_over(target, [0, 1], keepdims=0) if needs_sum else None
    if weighing.smoothing == 0.0:
        return target, counted
    spread = graph.scalar(weighing.smoothing / classes)
    if weights is not None:
        spread = graph.emit("Mul", weights, spread)
    if weighing.ignored is not None:
        spread = graph.emit("Mul", graph.sum_over(one_hot, [1], keepdims=1), spread)
    return graph.emit("Add", graph.emit("Mul", target, graph.scalar(1 - weighing.smoothing)), spread), counted


def _class_weights(graph: GraphBuilder, weighing: Weighing) -> str | None:
    if weighing.weights_at_run_time:
        return CLASS_WEIGHT
    if not weighing.class_weights:
        return None
    return graph.constant(np.array(weighing.class_weights, dtype=np.float32))


def _mean(graph: GraphBuilder, losses: str) -> str:
    """Write the mean as ``loss`` and give the count."""
    count = _count(graph, losses)
    graph.emit_as(LOSS, "Div", graph.emit("ReduceSum", losses, keepdims=0), count)
    return count


def _count(graph: GraphBuilder, value: str) -> str:
    return graph.emit("Cast", graph.emit("Size", value), to=onnx.TensorProto.FLOAT)
