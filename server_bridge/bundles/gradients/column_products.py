"""Weight gradients by columns: what each tap sees is sliced out, and multiplied with the upstream gradient."""

from server_bridge.bundles.gradients.filters import Filters

COLUMNS_MAX = 2**17
"""Values a sample (0.5 MiB) up to which all taps lie side by side in one product: fastest, and the most memory.

Beyond it there is a product a tap, which needs no more memory than the input.
"""


def weight_gradient(filters: Filters) -> str:
    """Any rank; the plain way, also where a window has a single tap."""
    graph, windows = filters.graph, filters.windows
    image = windows.pad(graph, filters.image)
    upstream = graph.reshape(filters.upstream, (0, filters.weight[0], filters.positions))
    shape = (0, filters.channels, 1, filters.positions)
    slices = [graph.reshape(windows.seen(graph, image, tap), shape) for tap in windows.offsets()]
    if len(slices) > 1 and filters.channels * filters.taps * filters.positions <= COLUMNS_MAX:
        slices = [graph.emit("Concat", *slices, axis=2)]
    together = filters.taps // len(slices)
    products = [_product(filters, upstream, seen, together) for seen in slices]
    joined = products[0] if len(products) == 1 else graph.emit("Concat", *products, axis=2)
    return graph.reshape(joined, filters.weight)


def _product(filters: Filters, upstream: str, seen: str, taps: int) -> str:
    graph = filters.graph
    flat = graph.reshape(seen, (0, filters.channels * taps, filters.positions))
    total = filters.product(upstream, flat, filters.inputs * taps, filters.positions)
    return graph.reshape(total, (filters.weight[0], filters.inputs, taps))
