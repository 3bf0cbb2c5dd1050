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
    shape = (0, filters.channels, 1, filters.positions)
    slices = [graph.reshape(windows.seen(graph, image, tap), shape) for tap in windows.offsets()]
    if len(slices) > 1 and _joint(filters):
        slices = [graph.emit("Concat", *slices, axis=2)]
    together = filters.taps // len(slices)
    products = [_product(filters, upstream, seen, together) for seen in slices]
    joined = products[0] if len(products) == 1 else graph.emit("Concat", *products, axis=2)
    return graph.reshape(joined, filters.weight)


def _joint(filters: Filters) -> bool:
    values = filters.channels * filters.taps * filters.positions
    return filters.channels <= JOINT_CHANNELS_MAX and values <= JOINT_MAX


def _product(filters: Filters, upstream: str, seen: str, taps: int) -> str:
    graph = filters.graph
    flat = graph.reshape(seen, (0, filters.channels * taps, filters.positions))
    total = filters.product(upstream, flat, filters.inputs * taps, filters.positions)
    return graph.reshape(total, (filters.weight[0], filters.inputs, taps))
