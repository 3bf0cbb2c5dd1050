"""What the gradients of a convolution's weight work on, and the products that they share."""

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Self

import numpy as np
from numpy.typing import NDArray

from server_bridge.bundles.gradients.graph import GraphBuilder
from server_bridge.bundles.gradients.site import Site
from server_bridge.bundles.gradients.windows import Windows

_JOINT_FROM = 4
"""Measured: a product per sample costs more than moving the batch beside the positions from this ratio on."""


@dataclass(frozen=True)
class Filters:
    """A convolution seen from its weight.

    Args:
        graph: where to write.
        image: the input, (n, channels, *windows.size).
        upstream: the output's gradient, (n, outputs, *windows.count).
        windows: the geometry.
        weight: the weight's shape, (outputs, inputs a group, *windows.kernel).
        groups: of channels that do not mix.
    """

    graph: GraphBuilder
    image: str
    upstream: str
    windows: Windows
    weight: tuple[int, ...]
    groups: int

    @classmethod
    def of(cls, site: Site, weight: tuple[int, ...]) -> Self:
        """Those of a Conv node.

        Raises:
            DataError: its channels do not fit, or a spatial dimension is free.
        """
        windows = Windows.of(site, weight[2:])
        return cls(site.graph, site.node.input[0], site.upstream, windows, weight, site.integer("group", 1))

    @property
    def channels(self) -> int:
        """Of the input."""
        return self.groups * self.weight[1]

    @property
    def inputs(self) -> int:
        """Channels of the input, a group."""
        return self.weight[1]

    @property
    def outputs(self) -> int:
        """Channels of the output, a group."""
        return self.weight[0] // self.groups

    @cached_property
    def taps(self) -> int:
        """Positions of the kernel."""
        return prod(self.windows.kernel)

    @cached_property
    def positions(self) -> int:
        """Windows."""
        return prod(self.windows.count)

    @property
    def rank(self) -> int:
        """Spatial dimensions."""
        return len(self.windows.kernel)

    @property
    def depthwise(self) -> bool:
        """Whether every channel has one filter of its own."""
        return self.inputs == self.outputs == 1

    @property
    def channels_first(self) -> tuple[int, ...]:
        """The permutation that puts the channel before the sample, or back; blocks of a map stay whole."""
        return (1, 0, *range(2, 2 + self.rank))

    def selector(self, axis: int) -> NDArray[np.float32]:
        """(count, size, kernel): 1 where a window's tap reads a position of an axis; padding is nowhere."""
        windows = self.windows
        chosen = np.zeros((windows.count[axis], windows.size[axis], windows.kernel[axis]), dtype=np.float32)
        for window in range(windows.count[axis]):
            for tap in range(windows.kernel[axis]):
                position = window * windows.strides[axis] + tap * windows.dilations[axis] - windows.begin[axis]
                if 0 <= position < windows.size[axis]:
                    chosen[window, position, tap] = 1
        return chosen

    def product(self, upstream: str, seen: str, rows: int, positions: int) -> str:
        """Sums over samples and positions of upstream times what the filters see.

        A product per sample and a sum over samples, unless those products would outweigh their factors (many
        channels, few positions); then the samples lie beside the positions and there is one product.

        Args:
            upstream: (n, groups * outputs, positions).
            seen: (n, groups * rows, positions).
            rows: channels times taps, a group.
            positions: that both share.

        Returns: (groups * outputs, rows).
        """
        graph, split = self.graph, self.groups > 1
        left = graph.reshape(upstream, (0, self.groups, self.outputs, positions)) if split else upstream
        right = graph.reshape(seen, (0, self.groups, rows, positions)) if split else seen
        if self.outputs * rows <= _JOINT_FROM * (self.outputs + rows) * positions:
            turned = graph.emit("Transpose", right, perm=(0, 1, 3, 2) if split else (0, 2, 1))
            total = graph.sum_over(graph.emit("MatMul", left, turned), [0], keepdims=0)
        else:
            order, flat = ((1, 2, 0, 3), (self.groups,)) if split else ((1, 0, 2), ())
            left = graph.reshape(graph.emit("Transpose", left, perm=order), (*flat, self.outputs, -1))
            right = graph.reshape(graph.emit("Transpose", right, perm=order), (*flat, rows, -1))
            turned = graph.emit("Transpose", right, perm=(0, 2, 1) if split else (1, 0))
            total = graph.emit("MatMul", left, turned)
        return graph.reshape(total, (self.weight[0], rows)) if split else total
