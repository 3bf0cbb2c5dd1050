"""Gradients of functions of one value; at kinks as torch has them."""

from collections.abc import Mapping
from math import pi, sqrt

import onnx

from server_bridge.bundles.gradients.site import Site, unbroadcast


def clip(site: Site) -> Mapping[int, str]:
    """The value within bounds: passes where it is unchanged, at the bounds too (torch.clamp).

    A trained bound gets what is beyond it.
    """
    graph, x, y = site.graph, site.node.input[0], site.node.output[0]
    gradients = {}
    if 0 in site.wanted:
        gradients[0] = _masked(site, graph.emit("Equal", x, y))
    for position, beyond in ((1, "Less"), (2, "Greater")):
        if position in site.wanted:
            part = _masked(site, graph.emit(beyond, x, site.node.input[position]))
            gradients[position] = graph.emit("ReduceSum", part, keepdims=0)
    return gradients


def leaky_relu(site: Site) -> Mapping[int, str]:
    """``x`` where positive, else ``alpha x``; alpha at 0."""
    graph = site.graph
    less = graph.emit("Mul", site.upstream, graph.scalar(site.number("alpha", 0.01)))
    return {0: graph.emit("Where", _positive(site), site.upstream, less)}


def parametric_relu(site: Site) -> Mapping[int, str]:
    """``x`` where positive, else ``slope x``; the slope at 0."""
    graph, x, slope = site.graph, site.node.input[0], site.node.input[1]
    gradients = {}
    if 0 in site.wanted:
        less = graph.emit("Mul", site.upstream, slope)
        gradients[0] = graph.emit("Where", _positive(site), site.upstream, less)
    if 1 in site.wanted:
        negative = graph.emit("Min", x, graph.scalar(0.0))
        product = graph.emit("Mul", site.upstream, negative)
        gradients[1] = unbroadcast(graph, product, site.output_shape, site.shape(1))
    return gradients


def elu(site: Site) -> Mapping[int, str]:
    """``x`` where positive, else ``alpha (exp x - 1)``, whose slope is the value plus alpha."""
    graph = site.graph
    bent = graph.emit("Add", site.node.output[0], graph.scalar(site.number("alpha", 1.0)))
    return _sloped(site, graph.emit("Where", _positive(site), graph.scalar(1.0), bent))


def selu(site: Site) -> Mapping[int, str]:
    """Elu, scaled."""
    graph = site.graph
    alpha = site.number("alpha", 1.67326319217681884765625)
    gamma = site.number("gamma", 1.05070102214813232421875)
    bent = graph.emit("Add", site.node.output[0], graph.scalar(alpha * gamma))
    return _sloped(site, graph.emit("Where", _positive(site), graph.scalar(gamma), bent))


def hard_sigmoid(site: Site) -> Mapping[int, str]:
    """``alpha x + beta`` within 0 and 1; 0 at both (torch.nn.functional.hardsigmoid)."""
    graph, y = site.graph, site.node.output[0]
    above = graph.emit("Greater", y, graph.scalar(0.0))
    below = graph.emit("Less", y, graph.scalar(1.0))
    scaled = graph.emit("Mul", site.upstream, graph.scalar(site.number("alpha", 0.2)))
    return {0: _masked(site, graph.emit("And", above, below), scaled)}


def hard_swish(site: Site) -> Mapping[int, str]:
    """``x hard_sigmoid(x)`` with a slope of 1/6: x / 3 + 1/2 between -3 and 3."""
    graph, x = site.graph, site.node.input[0]
    bent = graph.emit("Add", graph.emit("Mul", x, graph.scalar(1 / 3)), graph.scalar(0.5))
    upper = graph.emit("Where", graph.emit("Less", x, graph.scalar(3.0)), bent, graph.scalar(1.0))
    return _sloped(site, graph.emit("Where", graph.emit("Greater", x, graph.scalar(-3.0)), upper, graph.scalar(0.0)))


def gelu(site: Site) -> Mapping[int, str]:
    """``x P(x)`` with the normal distribution function P, or its tanh approximation.

    Source: Hendrycks and Gimpel 2016; the slope is P(x) + x p(x), and for the approximation
        with t = tanh(c (x + 0.044715 x^3)): (1 + t) / 2 + x (1 - t^2) c (1 + 3 * 0.044715 x^2) / 2.
    """
    return _sloped(site, _tanh_slope(site) if site.text("approximate", "none") == "tanh" else _erf_slope(site))


def erf(site: Site) -> Mapping[int, str]:
    """The error function: 2 / sqrt(pi) exp(-x^2)."""
    graph = site.graph
    return _sloped(site, graph.emit("Mul", _bell(site, -1.0), graph.scalar(2 / sqrt(pi))))


def softplus(site: Site) -> Mapping[int, str]:
    """``log(1 + exp x)``: the logistic function."""
    return _sloped(site, site.graph.emit("Sigmoid", site.node.input[0]))


def softsign(site: Site) -> Mapping[int, str]:
    """``x / (1 + |x|)``: 1 / (1 + |x|)^2."""
    graph = site.graph
    width = graph.emit("Add", graph.emit("Abs", site.node.input[0]), graph.scalar(1.0))
    return {0: graph.emit("Div", site.upstream, graph.emit("Mul", width, width))}


def relu(site: Site) -> Mapping[int, str]:
    """``max(x, 0)``; 0 at 0. A mask by Cast, since Where is a fifth slower."""
    return {0: _masked(site, site.graph.emit("Cast", site.node.output[0], to=onnx.TensorProto.BOOL))}


def tanh(site: Site) -> Mapping[int, str]:
    """``tanh x``: 1 - y^2."""
    graph, y = site.graph, site.node.output[0]
    return _sloped(site, graph.emit("Sub", graph.scalar(1.0), graph.emit("Mul", y, y)))


def sigmoid(site: Site) -> Mapping[int, str]:
    """The logistic function: y (1 - y)."""
    graph, y = site.graph, site.node.output[0]
    return _sloped(site, graph.emit("Mul", y, graph.emit("Sub", graph.scalar(1.0), y)))


def _erf_slope(site: Site) -> str:
    graph, x = site.graph, site.node.input[0]
    error = graph.emit("Erf", graph.emit("Mul", x, graph.scalar(sqrt(0.5))))
    share = graph.emit("Mul", graph.emit("Add", error, graph.scalar(1.0)), graph.scalar(0.5))
    density = graph.emit("Mul", _bell(site, -0.5), graph.scalar(1 / sqrt(2 * pi)))
    return graph.emit("Add", share, graph.emit("Mul", x, density))


def _tanh_slope(site: Site) -> str:
    graph, x = site.graph, site.node.input[0]
    half, one = graph.scalar(0.5), graph.scalar(1.0)
    cubic, scale = 0.044715, sqrt(2 / pi)
    square = graph.emit("Mul", x, x)
    bent = graph.emit("Add", graph.emit("Mul", square, graph.scalar(scale * cubic)), graph.scalar(scale))
    t = graph.emit("Tanh", graph.emit("Mul", x, bent))
    share = graph.emit("Mul", graph.emit("Add", t, one), half)
    inner = graph.emit("Add", graph.emit("Mul", square, graph.scalar(3 * scale * cubic)), graph.scalar(scale))
    rest = graph.emit("Mul", graph.emit("Sub", one, graph.emit("Mul", t, t)), graph.emit("Mul", x, half))
    return graph.emit("Add", share, graph.emit("Mul", rest, inner))


def _bell(site: Site, rate: float) -> str:
    """exp(rate x^2)."""
    graph, x = site.graph, site.node.input[0]
    square = graph.emit("Mul", x, x)
    return graph.emit("Exp", graph.emit("Mul", square, graph.scalar(rate)))


def _positive(site: Site) -> str:
    return site.graph.emit("Greater", site.node.input[0], site.graph.scalar(0.0))


def _sloped(site: Site, slope: str) -> dict[int, str]:
    return {0: site.graph.emit("Mul", site.upstream, slope)}


def _masked(site: Site, where: str, gradient: str = "") -> str:
    """The gradient where a boolean holds, 0 elsewhere."""
    graph = site.graph
    return graph.emit("Mul", gradient or site.upstream, graph.emit("Cast", where, to=onnx.TensorProto.FLOAT))
