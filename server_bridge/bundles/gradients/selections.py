"""Weight gradients of two-dimensional convolutions by selection matrices.

Slicing a tap out of an image with padding and stride is slow in onnxruntime (about 1 ns a value, more than the
products that follow). A product of the image's rows with a matrix of zeros and ones does the same for a kernel's
columns at once, padding and stride included; the kernel's rows are whole blocks of memory then.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from server_bridge.bundles.gradients.filters import Filters
from server_bridge.bundles.gradients.rows import Place, Rows, cut

SMALL_MAP, FEW_POSITIONS = 64, 16
"""Input positions and windows up to which a matrix a tap selects from the whole map (measured)."""
WIDTH_MAX, STRIDED_WIDTH_MAX = 24, 64
"""Columns of the image up to which a selection matrix is faster than slices; with strides slices are slower."""
FEW_CHANNELS = 8
"""Fewer are faster by column products while the image is small: the products are thin."""


def suits(filters: Filters) -> bool:
    """Whether these ways are the faster ones, or the ones that need less memory."""
    if filters.taps == 1 and filters.windows.count == filters.windows.size:
        return False
    if _small(filters):
        return True
    thin = filters.inputs < FEW_CHANNELS and max(filters.windows.strides) == 1
    width = WIDTH_MAX if max(filters.windows.strides) == 1 else STRIDED_WIDTH_MAX
    return filters.rank == 2 and filters.windows.size[1] <= width and not thin


def weight_gradient(filters: Filters) -> str:
    """By tap where maps are small, else by column."""
    return _by_tap(filters) if _small(filters) else _by_column(filters)


def _small(filters: Filters) -> bool:
    return prod(filters.windows.size) <= SMALL_MAP and filters.positions <= FEW_POSITIONS and filters.inputs > 1


def _by_tap(filters: Filters) -> str:
    """Per tap a product with its selection matrix, then one over all samples: no sum over a stack of products."""
    graph, groups = filters.graph, filters.groups
    lead = (groups,) if groups > 1 else ()
    turn = (0, 2, 1) if groups > 1 else (1, 0)
    image = graph.emit("Transpose", filters.image, perm=filters.channels_first)
    image = graph.reshape(image, (-1, prod(filters.windows.size)))
    upstream = graph.emit("Transpose", filters.upstream, perm=filters.channels_first)
    upstream = graph.reshape(upstream, (*lead, filters.outputs, -1))
    products = []
    for tap in np.ndindex(*filters.windows.kernel):
        seen = graph.emit("MatMul", image, graph.constant(_selection(filters, tap)))
        turned = graph.emit("Transpose", graph.reshape(seen, (*lead, filters.inputs, -1)), perm=turn)
        total = graph.emit("MatMul", upstream, turned)
        products.append(graph.reshape(total, (filters.weight[0], filters.inputs, 1)))
    return graph.reshape(graph.emit("Concat", *products, axis=2), filters.weight)


def _selection(filters: Filters, tap: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """(positions of the map, windows): 1 where a window's tap lies."""
    chosen = np.ones((1, 1), dtype=np.float32)
    for axis, place in enumerate(tap):
        chosen = np.kron(chosen, filters.selector(axis)[:, :, place].T)
    return chosen


def _by_column(filters: Filters) -> str:
    """What a column of the kernel sees in every block of rows, for each row that a block has; products by kernel row.

    With few channels all columns share one product a kernel row: thin products are slow.
    """
    graph, windows = filters.graph, filters.windows
    rows = Rows.of(windows)
    upstream = graph.reshape(filters.upstream, (0, filters.weight[0], filters.positions))
    image = graph.reshape(
        rows.whole(graph, filters.image), (0, filters.channels, rows.blocks, rows.step * windows.size[1])
    )
    columns = range(windows.kernel[1])
    sets: list[Sequence[int]] = [columns] if filters.channels < FEW_CHANNELS else [[column] for column in columns]
    parts = [_columns_part(filters, rows, upstream, image, chosen) for chosen in sets]
    joined = parts[0] if len(parts) == 1 else graph.emit("Concat", *parts, axis=3)
    return graph.reshape(joined, filters.weight)


def _columns_part(filters: Filters, rows: Rows, upstream: str, image: str, columns: Sequence[int]) -> str:
    """(outputs, inputs, kernel's rows, columns)."""
    begins = dict.fromkeys(place.begin for place in rows.places)
    seen = {begin: _seen(filters, rows, image, begin, columns) for begin in begins}
    parts = [_row_part(filters, rows, upstream, seen[place.begin], place, len(columns)) for place in rows.places]
    return parts[0] if len(parts) == 1 else filters.graph.emit("Concat", *parts, axis=2)


def _seen(filters: Filters, rows: Rows, image: str, begin: int, columns: Sequence[int]) -> str:
    """(n, channels, columns, blocks * windows across): in row ``begin`` of every block."""
    graph, across, wide = filters.graph, filters.windows.count[1], filters.windows.size[1]
    selection = np.zeros((rows.step, wide, len(columns), across), dtype=np.float32)
    for place, column in enumerate(columns):
        selection[begin, :, place] = filters.selector(1)[:, :, column].T
    seen = graph.emit("MatMul", image, graph.constant(selection.reshape(rows.step * wide, -1)))
    if len(columns) > 1:
        seen = graph.reshape(seen, (0, filters.channels, rows.blocks, len(columns), across))
        seen = graph.emit("Transpose", seen, perm=(0, 1, 3, 2, 4))
    return graph.reshape(seen, (0, filters.channels, len(columns), rows.blocks * across))


def _row_part(filters: Filters, rows: Rows, upstream: str, seen: str, place: Place, columns: int) -> str:
    """(outputs, inputs, 1, columns): windows whose block lies in the image, beside what they see there."""
    graph, across = filters.graph, filters.windows.count[1]
    first, last = rows.matched(place)
    shape = (filters.weight[0], filters.inputs, 1, columns)
    if first >= last:
        return graph.constant(np.zeros(shape, dtype=np.float32))
    begin, end = (first + place.shift) * across, (last + place.shift) * across
    seen = cut(graph, seen, 3, begin, end, rows.blocks * across)
    seen = graph.reshape(seen, (0, filters.channels * columns, end - begin))
    above = cut(graph, upstream, 2, first * across, last * across, filters.positions)
    return graph.reshape(filters.product(above, seen, filters.inputs * columns, end - begin), shape)
