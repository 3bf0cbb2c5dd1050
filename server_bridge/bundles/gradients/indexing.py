"""Gradients of operators that read chosen elements; what is read twice gets the sum.

Sums go through OneHot and a product where a table has no more rows than columns, else through ScatterElements with
add (1,024 tokens: 0.24 and 0.49 ms for 64 rows of 128, 0.71 and 0.53 for 256, 3.5 and 0.2 for 2,048 rows of 32). Both
repeat bit for bit, while ScatterND's add races.
"""

from collections.abc import Mapping
from math import prod

import numpy as np
from numpy.typing import NDArray

from server_bridge.bundles.gradients.site import Site

_OPEN_END = 2**31 - 1
"""A slice's end from which on it is open: exporters write the largest int64 or int32."""


def gather(site: Site) -> Mapping[int, str]:
    """Slices by index along an axis: an embedding, or one position of a sequence."""
    rank = len(site.shape(0))
    axis = site.integer("axis", 0) % rank
    size = site.shape(0)[axis]
    indices = site.constant(1)
    if indices is not None and size is not None and indices.size:
        places = indices.reshape(-1) % size
        if len(set(places.tolist())) == len(places):
            flat = _kept_axis(site, axis, len(indices.shape))
            return {0: _placed(site, flat, axis, size, places)}
    width = site.shape(0)[1] if rank == 2 and axis == 0 else None
    if size is not None and width is not None and size <= width:
        return {0: _by_one_hot(site, size, width)}
    return {0: _by_scatter(site, axis)}


def gather_elements(site: Site) -> Mapping[int, str]:
    """Elements by index along an axis."""
    axis, indices = site.integer("axis", 0), site.node.input[1]
    total = site.graph.emit("ScatterElements", _zeros(site), indices, site.upstream, axis=axis, reduction="add")
    return {0: total}


def gather_nd(site: Site) -> Mapping[int, str]:
    """Slices by indices of several axes, counted as one axis."""
    if site.integer("batch_dims", 0):
        raise site.refusal("attribute batch_dims has no gradient rule")
    graph, shape = site.graph, site.shape(0)
    depth = site.fixed(site.shape(1)[-1:], "the last axis of input indices")[0]
    sizes = site.fixed(shape[1:depth], "the indexed part")
    strides = np.array([prod(sizes[place:]) for place in range(depth)], dtype=np.int64)
    runtime = graph.emit("Shape", site.node.input[0], start=0, end=depth)
    indices = site.node.input[1]
    negative = graph.emit("Less", indices, graph.integers((0,)))
    counted = graph.emit("Where", negative, graph.emit("Add", indices, runtime), indices)
    rows = graph.sum_over(graph.emit("Mul", counted, graph.constant(strides)), [-1], keepdims=0)
    rest = site.fixed(shape[depth:], "a gathered slice")
    width = prod(rest)
    flat = graph.integers((-1, width))
    zeros = graph.emit("Reshape", _zeros(site), flat)
    upstream = graph.emit("Reshape", site.upstream, flat)
    places = graph.emit("Expand", graph.emit("Reshape", rows, graph.integers((-1, 1))), graph.integers((1, width)))
    total = graph.emit("ScatterElements", zeros, places, upstream, axis=0, reduction="add")
    return {0: graph.reshape_like(total, site.node.input[0])}


def cut(site: Site) -> Mapping[int, str]:
    """A slice with any steps, axis by axis: back to where it came from."""
    rank = len(site.shape(0))
    gradient = site.upstream
    for number, axis in enumerate(_sliced_axes(site, rank)):
        gradient = _uncut(site, gradient, number, axis)
    return {0: gradient}


def _sliced_axes(site: Site, rank: int) -> tuple[int, ...]:
    if site.has(3):
        return tuple(axis % rank for axis in site.fixed_integers(3, "input axes"))
    count = site.fixed(site.shape(1), "input starts")[0]
    return tuple(range(count))


def _uncut(site: Site, gradient: str, number: int, axis: int) -> str:
    """Undo one axis of a slice; where bounds or size are not known, by positions counted as the graph runs."""
    starts, ends = site.constant(1), site.constant(2)
    steps = site.constant(4) if site.has(4) else np.ones(number + 1, dtype=np.int64)
    if starts is None or ends is None or steps is None:
        return _uncut_by_counting(site, gradient, number, axis)
    start, end, step = (int(values.reshape(-1)[number]) for values in (starts, ends, steps))
    size = site.shape(0)[axis]
    if size is not None:
        places = np.arange(size)[start:end:step]
        return gradient if len(places) == size and step == 1 else _placed(site, gradient, axis, size, places)
    if start == 0 and step == 1 and end >= _OPEN_END:
        return gradient
    return _uncut_by_counting(site, gradient, number, axis)


def _uncut_by_counting(site: Site, gradient: str, number: int, axis: int) -> str:
    """Number the input's positions, slice the numbers alike, and put the gradient there."""
    graph, x = site.graph, site.node.input[0]
    size = graph.emit("Shape", x, start=axis, end=axis + 1)
    zero, one = (graph.constant(np.array(value, dtype=np.int64)) for value in (0, 1))
    limit = graph.emit("Reshape", size, graph.integers(()))
    numbers = graph.emit("Range", zero, limit, one)
    here = graph.integers((number,))
    starts, ends = (graph.emit("Gather", site.node.input[position], here) for position in (1, 2))
    steps = [graph.emit("Gather", site.node.input[4], here)] if site.has(4) else []
    places = graph.emit("Slice", numbers, starts, ends, graph.integers((0,)), *steps)
    return _scattered(site, gradient, _resized(site, gradient, axis, size), places, axis)


def _resized(site: Site, gradient: str, axis: int, size: str) -> str:
    """Zeros as the gradient, but for the size of one axis."""
    graph = site.graph
    parts = [graph.emit("Shape", gradient, start=0, end=axis), size, graph.emit("Shape", gradient, start=axis + 1)]
    return graph.emit("ConstantOfShape", graph.emit("Concat", *parts, axis=0))


def _placed(site: Site, gradient: str, axis: int, size: int, places: NDArray[np.int64]) -> str:
    """Put slices along an axis at known, different places; zeros elsewhere.

    A block in order is padded; else each place looks up its slice, or one of zeros behind the last.
    """
    graph = site.graph
    rank = len(site.shape(0))
    count = len(places)
    begin, end = [0] * rank, [0] * rank
    if count and (np.diff(places) == 1).all():
        begin[axis], end[axis] = int(places[0]), size - int(places[-1]) - 1
        return graph.emit("Pad", gradient, graph.integers((*begin, *end))) if size > count else gradient
    source = np.full(size, count, dtype=np.int64)
    source[places] = np.arange(count)
    end[axis] = 1
    padded = graph.emit("Pad", gradient, graph.integers((*begin, *end))) if size > count else gradient
    return graph.emit("Gather", padded, graph.constant(source), axis=axis)


def _kept_axis(site: Site, axis: int, rank: int) -> str:
    """The upstream gradient with the axes of the indices as one."""
    graph = site.graph
    if rank == 1:
        return site.upstream
    if rank == 0:
        return graph.emit("Unsqueeze", site.upstream, graph.integers((axis,)))
    before = graph.emit("Shape", site.upstream, start=0, end=axis)
    after = graph.emit("Shape", site.upstream, start=axis + rank)
    return graph.emit("Reshape", site.upstream, graph.emit("Concat", before, graph.integers((-1,)), after, axis=0))


def _by_one_hot(site: Site, rows: int, width: int) -> str:
    graph = site.graph
    flat = graph.emit("Reshape", site.node.input[1], graph.integers((-1,)))
    on_off = graph.constant(np.array([0, 1], dtype=np.float32))
    chosen = graph.emit("OneHot", flat, graph.constant(np.array(rows, dtype=np.int64)), on_off, axis=-1)
    upstream = graph.reshape(site.upstream, (-1, width))
    return graph.emit("Gemm", chosen, upstream, transA=1)


def _by_scatter(site: Site, axis: int) -> str:
    graph = site.graph
    rank = len(site.shape(1))
    places = graph.emit("Reshape", site.node.input[1], graph.integers((-1,)))
    return _scattered(site, _kept_axis(site, axis, rank), _zeros(site), places, axis)


def _scattered(site: Site, gradient: str, zeros: str, places: str, axis: int) -> str:
    """Add slices along an axis at places that may repeat."""
    graph = site.graph
    trailing = len(site.shape(0)) - axis - 1
    column = graph.emit("Reshape", places, graph.integers((-1, *[1] * trailing)))
    everywhere = graph.emit("Expand", column, graph.emit("Shape", gradient))
    return graph.emit("ScatterElements", zeros, everywhere, gradient, axis=axis, reduction="add")


def _zeros(site: Site) -> str:
    """Zeros as input 0."""
    return site.graph.emit("ConstantOfShape", site.graph.emit("Shape", site.node.input[0]))
