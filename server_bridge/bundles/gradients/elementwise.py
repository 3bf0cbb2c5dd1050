"""Gradients of element-wise operators."""

from collections.abc import Mapping

import onnx

from server_bridge.bundles.gradients.site import Site, unbroadcast


def add(site: Site) -> Mapping[int, str]:
    """``a + b``."""
    return {position: _reduced(site, site.upstream, position) for position in site.wanted}


def subtract(site: Site) -> Mapping[int, str]:
    """``a - b``."""
    gradients = {}
    for position in site.wanted:
        reduced = _reduced(site, site.upstream, position)
        gradients[position] = site.graph.emit("Neg", reduced) if position == 1 else reduced
    return gradients


def multiply(site: Site) -> Mapping[int, str]:
    """``a * b``."""
    return {
        position: _reduced(site, site.graph.emit("Mul", site.upstream, site.node.input[1 - position]), position)
        for position in site.wanted
    }


def divide(site: Site) -> Mapping[int, str]:
    """``a / b``."""
    graph, divisor = site.graph, site.node.input[1]
    quotient = graph.emit("Div", site.upstream, divisor)
    gradients = {}
    if 0 in site.wanted:
        gradients[0] = _reduced(site, quotient, 0)
    if 1 in site.wanted:
        product = graph.emit("Neg", graph.emit("Mul", quotient, site.node.output[0]))
        gradients[1] = _reduced(site, product, 1)
    return gradients


def negate(site: Site) -> Mapping[int, str]:
    """``-x``."""
    return {0: site.graph.emit("Neg", site.upstream)}


def relu(site: Site) -> Mapping[int, str]:
    """``max(x, 0)``; 0 at 0. A mask by Cast, since Where is a fifth slower."""
    graph = site.graph
    positive = graph.emit("Cast", site.node.output[0], to=onnx.TensorProto.BOOL)
    mask = graph.emit("Cast", positive, to=onnx.TensorProto.FLOAT)
    return {0: graph.emit("Mul", site.upstream, mask)}


def tanh(site: Site) -> Mapping[int, str]:
    """``tanh x``: 1 - y^2."""
    graph, y = site.graph, site.node.output[0]
    slope = graph.emit("Sub", graph.scalar(1.0), graph.emit("Mul", y, y))
    return {0: graph.emit("Mul", site.upstream, slope)}


def sigmoid(site: Site) -> Mapping[int, str]:
    """The logistic function: y (1 - y)."""
    graph, y = site.graph, site.node.output[0]
    slope = graph.emit("Mul", y, graph.emit("Sub", graph.scalar(1.0), y))
    return {0: graph.emit("Mul", site.upstream, slope)}


def identity(site: Site) -> Mapping[int, str]:
    """``x``, as Identity and as Dropout when not training."""
    return {0: site.upstream}


def _reduced(site: Site, gradient: str, position: int) -> str:
    return unbroadcast(site.graph, gradient, site.output_shape, site.shape(position))
