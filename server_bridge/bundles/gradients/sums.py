"""Long sums that stay as exact as torch's."""

from collections.abc import Sequence
from math import prod

from server_bridge.bundles.gradients.graph import GraphBuilder

LONG = 1024
"""Values a map from which its axes are summed one after another (measured: 96 x 96, error 3 times torch's at once)."""


def in_stages(
    graph: GraphBuilder, value: str, axes: Sequence[int], sizes: Sequence[int | None], *, keepdims: int
) -> str:
    """A sum over axes, the batch last: ReduceSum adds one by one, and its error grows with what it adds up at once.

    Args:
        graph: where to write.
        value: what to sum.
        axes: ascending; 0 is the batch.
        sizes: of the other axes; a free one counts as long.
        keepdims: 1 leaves them with size 1.
    """
    maps = [axis for axis in axes if axis != 0]
    known = [size for size in sizes if size is not None]
    long = len(known) < len(sizes) or prod(known) >= LONG
    stages = [[axis] for axis in reversed(maps)] if long else [maps]
    for stage in [*stages, [0]] if 0 in axes else stages:
        if stage:
            value = graph.sum_over(value, stage, keepdims=keepdims)
    return value


def by_channel(graph: GraphBuilder, value: str, sizes: Sequence[int | None]) -> str:
    """(channels,): sums of (n, channels, *sizes)."""
    return in_stages(graph, value, [0, *range(2, 2 + len(sizes))], sizes, keepdims=0)
