"""Gradients of reductions over axes."""

from collections.abc import Mapping
from math import prod

import onnx

from server_bridge.bundles.gradients.site import Site


def reduce_sum(site: Site) -> Mapping[int, str]:
    """The sum: the same to each."""
    return {0: _spread(site, _kept(site, site.upstream))}


def reduce_mean(site: Site) -> Mapping[int, str]:
    """The mean: an equal share to each."""
    graph = site.graph
    kept = _kept(site, site.upstream)
    return {0: _spread(site, graph.emit("Mul", kept, _share(site)))}


def reduce_extremum(site: Site) -> Mapping[int, str]:
    """The largest or smallest: to where it was found; equal ones share it evenly (torch.amax)."""
    graph, x = site.graph, site.node.input[0]
    axes = _axes(site)
    if axes == ():
        return {0: site.upstream}
    found = graph.emit("Equal", x, _kept(site, site.node.output[0]))
    mask = graph.emit("Cast", found, to=onnx.TensorProto.FLOAT)
    count = graph.sum_over(mask, axes, keepdims=1)
    return {0: graph.emit("Mul", mask, graph.emit("Div", _kept(site, site.upstream), count))}


def reduce_euclidean(site: Site) -> Mapping[int, str]:
    """The root of the sum of squares: x / y; 0 where the norm is."""
    graph, nothing = site.graph, site.graph.scalar(0.0)
    y = _kept(site, site.node.output[0])
    share = graph.emit("Div", _kept(site, site.upstream), y)
    safe = graph.emit("Where", graph.emit("Equal", y, nothing), nothing, share)
    return {0: graph.emit("Mul", site.node.input[0], safe)}


def reduce_absolute(site: Site) -> Mapping[int, str]:
    """The sum of absolute values: the sign; 0 at 0."""
    graph = site.graph
    return {0: graph.emit("Mul", graph.emit("Sign", site.node.input[0]), _kept(site, site.upstream))}


def reduce_squares(site: Site) -> Mapping[int, str]:
    """The sum of squares: 2x."""
    graph = site.graph
    doubled = graph.emit("Mul", _kept(site, site.upstream), graph.scalar(2.0))
    return {0: graph.emit("Mul", site.node.input[0], doubled)}


def reduce_log_sum_exp(site: Site) -> Mapping[int, str]:
    """``log sum exp x``: exp(x - y)."""
    graph = site.graph
    weight = graph.emit("Exp", graph.emit("Sub", site.node.input[0], _kept(site, site.node.output[0])))
    return {0: graph.emit("Mul", weight, _kept(site, site.upstream))}


def cumulative_sum(site: Site) -> Mapping[int, str]:
    """Running sums: running sums from the other end."""
    turned = 1 - site.integer("reverse", 0)
    attributes = {"exclusive": site.integer("exclusive", 0), "reverse": turned}
    return {0: site.graph.emit("CumSum", site.upstream, site.node.input[1], **attributes)}


def _axes(site: Site) -> tuple[int, ...]:
    """The axes, counted from 0: an attribute, or an input in later opsets; none given means all."""
    rank = len(site.shape(0))
    given = site.fixed_integers(1, "input axes") if site.has(1) else site.integers("axes", ())
    if not given:
        return () if site.integer("noop_with_empty_axes", 0) else tuple(range(rank))
    return tuple(sorted(axis % rank for axis in given))


def _kept(site: Site, value: str) -> str:
    """A value of the output's shape, with the reduced axes as ones."""
    axes = _axes(site)
    if site.integer("keepdims", 1) or not axes:
        return value
    return site.graph.emit("Unsqueeze", value, site.graph.integers(axes))


def _spread(site: Site, kept: str) -> str:
    if not _axes(site):
        return kept
    return site.graph.emit("Expand", kept, site.graph.emit("Shape", site.node.input[0]))


def _share(site: Site) -> str:
    """One over the number of reduced elements; counted while the graph runs where a size is free."""
    graph = site.graph
    shape = site.shape(0)
    sizes = [shape[axis] for axis in _axes(site)]
    known = [size for size in sizes if size is not None]
    if len(known) == len(sizes):
        return graph.scalar(1 / prod(known))
    counts = [graph.emit("Size", name) for name in (site.node.output[0], site.node.input[0])]
    fewer, all_of_them = (graph.emit("Cast", count, to=onnx.TensorProto.FLOAT) for count in counts)
    return graph.emit("Div", fewer, all_of_them)
