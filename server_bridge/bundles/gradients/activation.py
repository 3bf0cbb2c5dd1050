"""Gradients of functions of one value; at kinks as torch has them."""

from collections.abc import Mapping
from math import pi, sqrt

import numpy as np
import onnx

from server_bridge.bundles.gradients.site import Site, unbroadcast

_STEEP = float(np.finfo(np.float32).max)
"""Times it every number of 3e-39 and more is above 1: a HardSigmoid as steep is a mask in one node, not two."""


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
    return {0: _bent(site, site.graph.scalar(site.number("alpha", 0.01)))}


def parametric_relu(site: Site) -> Mapping[int, str]:
    """``x`` where positive, else ``slope x``; the slope at 0."""
    graph, x = site.graph, site.node.input[0]
    gradients = {}
    if 0 in site.wanted:
        gradients[0] = _bent(site, site.node.input[1])
    if 1 in site.wanted:
        negative = graph.emit("Min", x, graph.scalar(0.0))
        product = graph.emit("Mul", site.upstream, negative)
        gradients[1] = unbroadcast(graph, product, site.output_shape, site.shape(1))
    return gradients


def elu(site: Site) -> Mapping[int, str]:
    """``x`` where positive, else ``alpha (exp x - 1)``, whose slope is the value plus alpha."""
    return _exponential_below(site, site.number("alpha", 1.0), 1.0)


def selu(site: Site) -> Mapping[int, str]:
    """Elu, scaled by gamma."""
    gamma = site.number("gamma", 1.05070102214813232421875)
    return _exponential_below(site, gamma * site.number("alpha", 1.67326319217681884765625), gamma)


def hard_sigmoid(site: Site) -> Mapping[int, str]:
    """``alpha x + beta`` within 0 and 1; 0 at both (torch.nn.functional.hardsigmoid)."""
    graph, y = site.graph, site.node.output[0]
    above = graph.emit("Greater", y, graph.scalar(0.0))
    below = graph.emit("Less", y, graph.scalar(1.0))
    scaled = graph.emit("Mul", site.upstream, graph.scalar(site.number("alpha", 0.2)))
    return {0: _masked(site, graph.emit("And", above, below), scaled)}


def hard_swish(site: Site) -> Mapping[int, str]:
    """``x h(x)`` with a hard sigmoid h of slope 1/6: h(x) + x / 6 between -3 and 3, h(x) elsewhere."""
    graph, x = site.graph, site.node.input[0]
    share = graph.emit("HardSigmoid", x, alpha=1 / 6, beta=0.5)
    inside = graph.emit("Less", graph.emit("Abs", x), graph.scalar(3.0))
    rising = graph.emit("Mul", _masked(site, inside, x), graph.scalar(1 / 6))
    return _sloped(site, graph.emit("Add", share, rising))


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
    """``max(x, 0)``; 0 at 0."""
    mask = site.graph.emit("HardSigmoid", site.node.output[0], alpha=_STEEP, beta=0.0)
    return {0: site.graph.emit("Mul", site.upstream, mask)}


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


def _bent(site: Site, slope: str) -> str:
    """The gradient where the input is positive, else times a slope: exact on both sides."""
    graph = site.graph
    kept = _masked(site, _positive(site))
    return graph.emit("Add", kept, graph.emit("Mul", graph.emit("Sub", site.upstream, kept), slope))


def _exponential_below(site: Site, below: float, above: float) -> Mapping[int, str]:
    """The slope ``y + below`` where the input is not positive, and ``above`` where it is."""
    graph = site.graph
    bent = graph.emit("Add", graph.emit("Min", site.node.output[0], graph.scalar(0.0)), graph.scalar(below))
    if below == above:
        return _sloped(site, bent)
    positive = graph.emit("Cast", _positive(site), to=onnx.TensorProto.FLOAT)
    straight = graph.emit("Mul", positive, graph.scalar(above))
    return _sloped(site, graph.emit("Add", graph.emit("Sub", bent, graph.emit("Mul", bent, positive)), straight))


def _positive(site: Site) -> str:
    return site.graph.emit("Greater", site.node.input[0], site.graph.scalar(0.0))


def _sloped(site: Site, slope: str) -> dict[int, str]:
    return {0: site.graph.emit("Mul", site.upstream, slope)}


def _masked(site: Site, where: str, gradient: str = "") -> str:
    """The gradient where a boolean holds, 0 elsewhere: a product, since Where takes four times as long."""
    graph = site.graph
    return graph.emit("Mul", gradient or site.upstream, graph.emit("Cast", where, to=onnx.TensorProto.FLOAT))
