"""Weight gradients by columns: what each tap sees is sliced out, and multiplied with the upstream gradient."""

from server_bridge.bundles.gradients.filters import Filters

JOINT_CHANNELS_MAX, JOINT_MAX = 16, 2**17
"""Channels, and values a sample (0.5 MiB), up to which all taps lie side by side in one product.

Beyond there is a product a tap: as fast or faster (measured), and it needs no more memory than the input. On images of
32 x 96 x 96 in batches of 32 it peaks at 190 MB, as torch does; side by side it would be 1.5 GB.
"""


def weight_gradient(filters: Filters) -> str:
    """Any rank; the plain way, also where a window has a single tap."""
    graph, windows = filters.graph, filters.windows
    image = windows.pad(graph, filters.image)
    upstream = graph.reshape(filters.upstream, (0, filters.weight[0], filters.positions))
    slices = [windows.seen(graph, image, tap) for tap in windows.offsets()]
    if len(slices) == 1 or _joint(filters):
        return graph.reshape(_product(filters, upstream, _beside(filters, slices), filters.taps), filters.weight)
    shape = (filters.weight[0], filters.inputs, 1)
    products = [graph.reshape(_product(filters, upstream, seen, 1), shape) for seen in slices]
    return graph.reshape(graph.emit("Concat", *products, axis=2), filters.weight)


def _joint(filters: Filters) -> bool:
    values = filters.channels * filters.taps * filters.positions
    return filters.channels <= JOINT_CHANNELS_MAX and values <= JOINT_MAX


def _beside(filters: Filters, slices: list[str]) -> str:
    """(n, channels, taps, positions)."""
    if len(slices) == 1:
        return slices[0]
    graph, shape = filters.graph, (0, filters.channels, 1, filters.positions)
    return graph.emit("Concat", *(graph.reshape(seen, shape) for seen in slices), axis=2)


def _product(filters: Filters, upstream: str, seen: str, taps: int) -> str:
    """(outputs, inputs * taps)."""
    flat = filters.graph.reshape(seen, (0, filters.channels * taps, filters.positions))
    return filters.product(upstream, flat, filters.inputs * taps, filters.positions)
