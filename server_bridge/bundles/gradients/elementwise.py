"""Gradients of element-wise arithmetic; at kinks as torch has them."""

from collections.abc import Mapping

import onnx

from server_bridge.bundles.gradients.site import Site, unbroadcast


def add(site: Site) -> Mapping[int, str]:
    """``a + b``, and Sum of any number."""
    return {position: _reduced(site, site.upstream, position) for position in site.wanted}


def mean(site: Site) -> Mapping[int, str]:
    """The mean of any number of operands."""
    share = site.graph.emit("Mul", site.upstream, site.graph.scalar(1 / len(site.node.input)))
    return {position: _reduced(site, share, position) for position in site.wanted}


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


def power(site: Site) -> Mapping[int, str]:
    """``base ^ exponent``: exponent base^(exponent - 1) and base^exponent log(base).

    As in torch the base's is 0 where the exponent is, and the exponent's where the base is.
    """
    graph, base = site.graph, site.node.input[0]
    gradients = {}
    if 0 in site.wanted:
        gradients[0] = _reduced(site, graph.emit("Mul", site.upstream, _base_slope(site)), 0)
    if 1 in site.wanted:
        slope = graph.emit("Mul", site.node.output[0], graph.emit("Log", base))
        nothing = graph.emit("Equal", base, graph.scalar(0.0))
        product = graph.emit("Mul", site.upstream, graph.emit("Where", nothing, graph.scalar(0.0), slope))
        gradients[1] = unbroadcast(graph, product, site.output_shape, site.shape(1))
    return gradients


def extremum(site: Site) -> Mapping[int, str]:
    """Max and Min of any number of operands: to the one that was taken; equal ones share it evenly."""
    graph, y = site.graph, site.node.output[0]
    kind = onnx.TensorProto.FLOAT
    taken = [graph.emit("Cast", graph.emit("Equal", name, y), to=kind) for name in site.node.input]
    share = graph.emit("Div", site.upstream, graph.emit("Sum", *taken))
    return {position: _reduced(site, graph.emit("Mul", share, taken[position]), position) for position in site.wanted}


def negate(site: Site) -> Mapping[int, str]:
    """``-x``."""
    return {0: site.graph.emit("Neg", site.upstream)}


def absolute(site: Site) -> Mapping[int, str]:
    """``|x|``; 0 at 0."""
    return {0: site.graph.emit("Mul", site.upstream, site.graph.emit("Sign", site.node.input[0]))}


def exponential(site: Site) -> Mapping[int, str]:
    """``exp x``: y."""
    return {0: site.graph.emit("Mul", site.upstream, site.node.output[0])}


def logarithm(site: Site) -> Mapping[int, str]:
    """``log x``: 1 / x."""
    return {0: site.graph.emit("Div", site.upstream, site.node.input[0])}


def square_root(site: Site) -> Mapping[int, str]:
    """``sqrt x``: 1 / 2y."""
    half = site.graph.emit("Mul", site.upstream, site.graph.scalar(0.5))
    return {0: site.graph.emit("Div", half, site.node.output[0])}


def reciprocal(site: Site) -> Mapping[int, str]:
    """``1 / x``: -y^2."""
    graph, y = site.graph, site.node.output[0]
    return {0: graph.emit("Neg", graph.emit("Mul", site.upstream, graph.emit("Mul", y, y)))}


def sine(site: Site) -> Mapping[int, str]:
    """``sin x``: cos x."""
    return {0: site.graph.emit("Mul", site.upstream, site.graph.emit("Cos", site.node.input[0]))}


def cosine(site: Site) -> Mapping[int, str]:
    """``cos x``: -sin x."""
    return {
        0: site.graph.emit("Neg", site.graph.emit("Mul", site.upstream, site.graph.emit("Sin", site.node.input[0])))
    }


def where(site: Site) -> Mapping[int, str]:
    """One of two by a condition: to the one that was taken; by products, since Where takes four times as long."""
    graph = site.graph
    mask = graph.emit("Cast", site.node.input[0], to=onnx.TensorProto.FLOAT)
    taken = graph.emit("Mul", site.upstream, mask)
    gradients = {}
    if 1 in site.wanted:
        gradients[1] = _reduced(site, taken, 1)
    if 2 in site.wanted:
        gradients[2] = _reduced(site, graph.emit("Sub", site.upstream, taken), 2)
    return gradients


def identity(site: Site) -> Mapping[int, str]:
    """``x``, as Identity."""
    return {0: site.upstream}


def dropout(site: Site) -> Mapping[int, str]:
    """``x``: a bundle's graphs drop nothing, see `checks.checked_model`."""
    if site.has(2):
        raise site.refusal("input training_mode has no gradient rule", "export the model in evaluation mode")
    return {0: site.upstream}


def cast(site: Site) -> Mapping[int, str]:
    """The same number in another type: back to the input's."""
    kind = site.forward.element_types.get(site.node.input[0], onnx.TensorProto.FLOAT)
    return {0: site.graph.emit("Cast", site.upstream, to=kind)}


def _base_slope(site: Site) -> str:
    """The slope towards the base; constant exponents that nets use get short forms."""
    graph, base, y = site.graph, site.node.input[0], site.node.output[0]
    exponents = site.constant(1)
    exponent = float(exponents.reshape(-1)[0]) if exponents is not None and exponents.size == 1 else None
    if exponent == 2:
        return graph.emit("Mul", base, graph.scalar(2.0))
    if exponent == 3:
        return graph.emit("Mul", graph.emit("Mul", base, base), graph.scalar(3.0))
    if exponent == 0.5:
        return graph.emit("Div", graph.scalar(0.5), y)
    if exponent == -1:
        return graph.emit("Neg", graph.emit("Mul", y, y))
    if exponent is not None and exponent != 0:
        lower = graph.emit("Pow", base, graph.scalar(exponent - 1))
        return graph.emit("Mul", lower, graph.scalar(exponent))
    given = graph.emit("Cast", site.node.input[1], to=onnx.TensorProto.FLOAT)
    lower = graph.emit("Pow", base, graph.emit("Sub", given, graph.scalar(1.0)))
    nothing = graph.emit("Equal", given, graph.scalar(0.0))
    return graph.emit("Where", nothing, graph.scalar(0.0), graph.emit("Mul", given, lower))


def _reduced(site: Site, gradient: str, position: int) -> str:
    return unbroadcast(site.graph, gradient, site.output_shape, site.shape(position), site.rows)
