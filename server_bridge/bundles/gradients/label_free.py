"""Objectives without labels, their value and gradient.

Both take the class shares that the batch should have, ``class_prior`` (classes,), of any positive scale: where a
label shift was estimated the estimated shares, else those of the release; all ones for shares that are equal. Nothing
is learnt from an entropy alone: every sample may go to one class, and does at rates that are of use otherwise.
"""

import numpy as np
import onnx

from server_bridge.bundles.gradients.graph import GraphBuilder
from server_bridge.bundles.gradients.losses import LOSS, Gradient

CLASS_PRIOR, DIVERSITY, CONFIDENCE = "class_prior", "diversity", "confidence"
DIVERSITY_DEFAULT, CONFIDENCE_DEFAULT = 1.0, 0.7
LEAST_SHARE = 1e-6  # a class of share zero would have a logarithm of minus infinity


def entropy(graph: GraphBuilder, logits: str) -> Gradient:
    """Write mean H(p) + diversity x KL(mean p | class_prior) as ``loss``.

    Sure of each sample, and in all as many of each class as there should be. Graph inputs: ``class_prior`` and the
    scalar ``diversity``.

    Args:
        graph: where to write.
        logits: (n, classes) float32.

    Returns: the gradient, (n, classes).

    Source: Shi and Sha 2012 and Liang et al. 2020 (information maximisation), with the prior of the classes in the
        place of equal shares.
    """
    log_p = graph.emit("LogSoftmax", logits, axis=-1)
    p = graph.emit("Exp", log_p)
    count = _rows(graph, p)
    gain = graph.emit("Neg", graph.sum_over(graph.emit("Mul", p, log_p), [1], keepdims=1))
    mean = _batch_mean(graph, p, count)
    excess = graph.emit("Sub", graph.emit("Log", _at_least(graph, mean)), graph.emit("Log", _prior(graph)))
    distance = graph.sum_over(graph.emit("Mul", mean, excess), [0, 1], keepdims=0)
    total = graph.emit("Div", graph.sum_over(gain, [0, 1], keepdims=0), count)
    graph.emit_as(LOSS, "Add", total, graph.emit("Mul", distance, DIVERSITY))
    expected = graph.sum_over(graph.emit("Mul", p, excess), [1], keepdims=1)
    towards = graph.emit("Mul", graph.emit("Sub", excess, expected), DIVERSITY)
    slope = graph.emit("Sub", towards, graph.emit("Add", log_p, gain))
    return Gradient(graph.emit("Div", graph.emit("Mul", p, slope), count))


def pseudo_label(graph: GraphBuilder, logits: str, classes: int) -> Gradient:
    """Write the mean cross-entropy towards pseudo-labels as ``loss``; those below ``confidence`` are left out.

    A sample's pseudo-label is the largest of p x class_prior / (mean p of the batch), brought to sum 1, which also is
    its confidence. Where no sample is confident, loss and gradient are zero. Graph inputs: ``class_prior`` and the
    scalar ``confidence``.

    Args:
        graph: where to write.
        logits: (n, classes) float32.
        classes: how many.

    Returns: the gradient, (n, classes).

    Source: Lee 2013 (pseudo-labels); Berthelot et al. 2020 (ReMixMatch) for the alignment to the prior.
    """
    log_p = graph.emit("LogSoftmax", logits, axis=-1)
    p = graph.emit("Exp", log_p)
    mean = _at_least(graph, _batch_mean(graph, p, _rows(graph, p)))
    weighed = graph.emit("Mul", p, graph.emit("Div", _prior(graph), mean))
    total = graph.emit("Max", graph.sum_over(weighed, [1], keepdims=1), graph.scalar(LEAST_SHARE**2))
    aligned = graph.emit("Div", weighed, total)
    best = graph.emit("ArgMax", aligned, axis=1, keepdims=0)
    on_off = graph.constant(np.array([0, 1], dtype=np.float32))
    target = graph.emit("OneHot", best, graph.constant(np.array(classes, dtype=np.int64)), on_off, axis=-1)
    largest = graph.sum_over(graph.emit("Mul", aligned, target), [1], keepdims=1)
    sure = graph.emit("Cast", graph.emit("GreaterOrEqual", largest, CONFIDENCE), to=onnx.TensorProto.FLOAT)
    counted = graph.sum_over(sure, [0, 1], keepdims=0)
    taken = graph.emit("Max", counted, graph.scalar(1.0))
    target = graph.emit("Mul", target, sure)
    gain = graph.emit("Neg", graph.sum_over(graph.emit("Mul", target, log_p), [0, 1], keepdims=0))
    graph.emit_as(LOSS, "Div", gain, taken)
    return Gradient(graph.emit("Div", graph.emit("Sub", graph.emit("Mul", p, sure), target), taken), counted)


def _prior(graph: GraphBuilder) -> str:
    """``class_prior`` brought to sum 1, no share below the least."""
    total = graph.sum_over(CLASS_PRIOR, [0], keepdims=1)
    return _at_least(graph, graph.emit("Div", CLASS_PRIOR, total))


def _at_least(graph: GraphBuilder, shares: str) -> str:
    return graph.emit("Max", shares, graph.scalar(LEAST_SHARE))


def _batch_mean(graph: GraphBuilder, p: str, count: str) -> str:
    """(1, classes)."""
    return graph.emit("Div", graph.sum_over(p, [0], keepdims=1), count)


def _rows(graph: GraphBuilder, p: str) -> str:
    """How many rows, float32 []."""
    rows = graph.emit("Gather", graph.emit("Shape", p), graph.constant(np.array(0, dtype=np.int64)), axis=0)
    return graph.emit("Cast", rows, to=onnx.TensorProto.FLOAT)
