"""Gradients of depthwise convolutions: one filter a channel.

A product of two maps over the samples holds all pairs of positions, of which the taps are diagonals: more arithmetic
than needed, and several times faster than slicing out what each tap sees, since that is bound by memory.
"""

from math import prod

import numpy as np

from server_bridge.bundles.gradients import column_products
from server_bridge.bundles.gradients.filters import Filters
from server_bridge.bundles.gradients.rows import Rows, cut
from server_bridge.bundles.gradients.sums import in_stages

PAIRS_MAX = 4096
"""Pairs of an input and an output position up to which all are multiplied (measured: 8 x 8 with stride 1)."""
WASTE_MAX, STRIDED_WASTE_MAX = 9, 24
"""Products a useful one, up to which rows of maps are multiplied rather than slices (measured: 24 columns; with
strides, which slow slices down, 48)."""
LARGE = 800
"""Windows from which matrix products of slices are faster than elementwise ones, and need less memory."""


def has_small_maps(filters: Filters) -> bool:
    """Whether all pairs of positions are few."""
    pairs = filters.positions * prod(filters.windows.size)
    return filters.depthwise and filters.groups > 1 and pairs <= PAIRS_MAX


def weight_gradient(filters: Filters) -> str:
    """By all pairs of positions, by pairs of rows, or by tap."""
    if has_small_maps(filters):
        return _by_pairs(filters)
    limit = WASTE_MAX if max(filters.windows.strides) == 1 else STRIDED_WASTE_MAX
    if filters.rank == 2 and _waste(filters) <= limit:
        return _by_rows(filters)
    return column_products.weight_gradient(filters) if filters.positions >= LARGE else _by_tap(filters)


def input_gradient(filters: Filters, weight: str) -> str:
    """For small maps: the upstream maps times each channel's matrix from windows to positions."""
    graph, size, groups = filters.graph, prod(filters.windows.size), filters.groups
    spread = graph.emit("Transpose", _diagonals(filters), perm=(1, 0))
    matrices = graph.emit("MatMul", graph.reshape(weight, (groups, filters.taps)), spread)
    matrices = graph.reshape(matrices, (groups, filters.positions, size))
    total = graph.reshape(
        graph.emit("MatMul", _maps(filters, filters.upstream, filters.positions), matrices), (groups, -1, size)
    )
    turned = graph.emit("Transpose", total, perm=(1, 0, 2))
    return graph.reshape(turned, (-1, groups, *filters.windows.size))


def _by_pairs(filters: Filters) -> str:
    graph = filters.graph
    upstream = graph.emit("Transpose", _maps(filters, filters.upstream, filters.positions), perm=(0, 2, 1))
    pairs = graph.emit("MatMul", upstream, _maps(filters, filters.image, prod(filters.windows.size)))
    flat = graph.reshape(pairs, (filters.groups, filters.positions * prod(filters.windows.size)))
    return graph.reshape(graph.emit("MatMul", flat, _diagonals(filters)), filters.weight)


def _maps(filters: Filters, value: str, positions: int) -> str:
    """(channels, n, positions)."""
    turned = filters.graph.emit("Transpose", value, perm=filters.channels_first)
    return filters.graph.reshape(turned, (filters.groups, -1, positions))


def _diagonals(filters: Filters) -> str:
    """(windows * positions, taps): 1 where a window's tap lies.

    A product of the axes' small matrices, which onnxruntime computes once, when it loads the graph.
    """
    graph, whole = filters.graph, ""
    for axis in range(filters.rank):
        one = filters.selector(axis)
        shape = [1] * 3 * filters.rank
        shape[axis], shape[filters.rank + axis], shape[2 * filters.rank + axis] = one.shape
        factor = graph.constant(one.reshape(shape))
        whole = graph.emit("Mul", whole, factor) if whole else factor
    return graph.reshape(whole, (filters.positions * prod(filters.windows.size), filters.taps))


def _waste(filters: Filters) -> float:
    rows = Rows.of(filters.windows)
    shifts = {place.shift for place in rows.places}
    return len(shifts) * rows.step * filters.windows.size[1] / filters.taps


def _by_rows(filters: Filters) -> str:
    """Products of rows, one a shift between windows and blocks of rows."""
    graph, windows, groups = filters.graph, filters.windows, filters.groups
    rows = Rows.of(windows)
    image = graph.emit("Transpose", rows.whole(graph, filters.image), perm=filters.channels_first)
    image = graph.reshape(image, (groups, -1, rows.blocks, rows.step * windows.size[1]))
    upstream = graph.emit("Transpose", filters.upstream, perm=filters.channels_first)
    shifts = list(dict.fromkeys(place.shift for place in rows.places))
    parts = [_shift_part(filters, rows, upstream, image, shift) for shift in shifts]
    joined = parts[0] if len(parts) == 1 else graph.emit("Concat", *parts, axis=1)
    return graph.reshape(joined, filters.weight)


def _shift_part(filters: Filters, rows: Rows, upstream: str, image: str, shift: int) -> str:
    """(channels, kernel's rows at this shift * columns): diagonals of the products of rows."""
    graph, windows, groups = filters.graph, filters.windows, filters.groups
    places = [place for place in rows.places if place.shift == shift]
    across, width, columns = windows.count[1], rows.step * windows.size[1], windows.kernel[1]
    first, last = rows.matched(places[0])
    if first >= last:
        return graph.constant(np.zeros((groups, len(places) * columns), dtype=np.float32))
    seen = cut(graph, image, 2, first + shift, last + shift, rows.blocks)
    above = cut(graph, upstream, 2, first, last, windows.count[0])
    seen = graph.reshape(seen, (groups, -1, width))
    above = graph.emit("Transpose", graph.reshape(above, (groups, -1, across)), perm=(0, 2, 1))
    products = graph.reshape(graph.emit("MatMul", above, seen), (groups, across * width))
    chosen = np.zeros((across, rows.step, windows.size[1], len(places), columns), dtype=np.float32)
    for number, place in enumerate(places):
        chosen[:, place.begin, :, number, :] = filters.selector(1)
    return graph.emit("MatMul", products, graph.constant(chosen.reshape(across * width, len(places) * columns)))


def _by_tap(filters: Filters) -> str:
    """The sum of upstream times what the tap sees; needs no more memory than the input."""
    graph, windows = filters.graph, filters.windows
    image = windows.pad(graph, filters.image)
    spatial = list(range(2, 2 + filters.rank))
    sums = []
    for tap in windows.offsets():
        seen = graph.emit("Mul", windows.seen(graph, image, tap), filters.upstream)
        sums.append(graph.reshape(in_stages(graph, seen, spatial, windows.count, keepdims=0), (0, filters.groups, 1)))
    joined = sums[0] if len(sums) == 1 else graph.emit("Concat", *sums, axis=2)
    return graph.reshape(graph.sum_over(joined, [0], keepdims=0), filters.weight)
