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
    rank = len(site.output_shape)
    axis = site.integer("axis", 0) % rank
    sizes = [site.shape(position)[axis] for position in range(len(site.node.input))]
    return {position: _part(site, sizes, position, axis) for position in site.wanted}


def split(site: Site) -> Mapping[int, str]:
    """The outputs' gradients side by side; zeros for an output that the loss does not depend on."""
    graph = site.graph
    parts = [
        site.upstreams.get(position) or graph.emit("ConstantOfShape", graph.emit("Shape", name))
        for position, name in enumerate(site.node.output)
    ]
    return {0: graph.emit("Concat", *parts, axis=site.integer("axis", 0))}


def triangle(site: Site) -> Mapping[int, str]:
    """The upper or lower triangle: the same of the gradient."""
    further = site.node.input[1:]
    return {0: site.graph.emit("Trilu", site.upstream, *further, upper=site.integer("upper", 1))}


def space_to_depth(site: Site) -> Mapping[int, str]:
    """Blocks of positions as channels: back."""
    return {0: site.graph.emit("DepthToSpace", site.upstream, blocksize=site.integer("blocksize", 1), mode="DCR")}


def depth_to_space(site: Site) -> Mapping[int, str]:
    """Channels as blocks of positions (as a pixel shuffle has them, too): back."""
    graph, block = site.graph, site.integer("blocksize", 1)
    depth = graph.emit("SpaceToDepth", site.upstream, blocksize=block)
    if site.text("mode", "DCR") == "DCR":
        return {0: depth}
    _, channels, height, width = site.output_shape
    kept = site.fixed((channels, height, width), "the output")
    blocks = graph.reshape(depth, (0, block * block, kept[0], kept[1] // block, kept[2] // block))
    return {0: graph.reshape_like(graph.emit("Transpose", blocks, perm=(0, 2, 1, 3, 4)), site.node.input[0])}


def _part(site: Site, sizes: list[int | None], position: int, axis: int) -> str:
    """One operand's slice of the gradient; sizes that are free are counted as the graph runs."""
    graph = site.graph
    known = [size for size in sizes[: position + 1] if size is not None]
    if len(known) == position + 1:
        bounds = [graph.integers((sum(known[:place]),)) for place in (position, position + 1)]
    else:
        counts = [graph.emit("Shape", name, start=axis, end=axis + 1) for name in site.node.input[: position + 1]]
        bounds = [_sum(site, counts[:place]) for place in (position, position + 1)]
    return graph.emit("Slice", site.upstream, *bounds, graph.integers((axis,)))


def _sum(site: Site, counts: list[str]) -> str:
    if not counts:
        return site.graph.integers((0,))
    return site.graph.emit("ReduceSum", site.graph.emit("Concat", *counts, axis=0), keepdims=1)
