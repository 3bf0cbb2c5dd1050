"""Gradients of operators that only move elements."""

from collections.abc import Mapping

from server_bridge.bundles.gradients.site import Site


def reshape(site: Site) -> Mapping[int, str]:
    """Reshape, Flatten, Squeeze, Unsqueeze: back to the input's run-time shape."""
    return {0: site.graph.reshape_like(site.upstream, site.node.input[0])}


def transpose(site: Site) -> Mapping[int, str]:
    """The inverse permutation."""
    rank = len(site.output_shape)
    order = site.integers("perm", tuple(reversed(range(rank))))
    inverse = [order.index(axis) for axis in range(rank)]
    return {0: site.graph.emit("Transpose", site.upstream, perm=inverse)}


def concatenate(site: Site) -> Mapping[int, str]:
    """Each operand's part of the gradient."""
    axis = site.integer("axis", 0)
    sizes = [site.fixed((site.shape(position)[axis],), "the axis")[0] for position in range(len(site.node.input))]
    graph = site.graph
    gradients = {}
    for position in site.wanted:
        start = sum(sizes[:position])
        bounds = ([start], [start + sizes[position]], [axis])
        gradients[position] = graph.emit("Slice", site.upstream, *(graph.integers(values) for values in bounds))
    return gradients
