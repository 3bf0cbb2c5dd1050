"""The gradient through ``(x - mean) / deviation``, shared by the normalisations."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Self

from server_bridge.bundles.gradients.graph import GraphBuilder
from server_bridge.bundles.gradients.sums import in_stages


@dataclass(frozen=True)
class Standardised:
    """Values that were centred and scaled over some axes.

    Args:
        values: (x - mean) * inverse.
        inverse: 1 / sqrt(variance + epsilon), of size 1 along the axes.
        axes: that the mean and the (biased) variance were taken over.
        sizes: of these axes.
    """

    values: str
    inverse: str
    axes: tuple[int, ...]
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, graph: GraphBuilder, image: str, axes: Sequence[int], sizes: Sequence[int], epsilon: float) -> Self:
        """Computed anew from the input, for operators that give no statistics: two passes, as exact as the operator."""
        share = graph.scalar(1 / prod(sizes))
        mean = graph.emit("Mul", in_stages(graph, image, axes, sizes, keepdims=1), share)
        centred = graph.emit("Sub", image, mean)
        squares = in_stages(graph, graph.emit("Mul", centred, centred), axes, sizes, keepdims=1)
        variance = graph.emit("Add", graph.emit("Mul", squares, share), graph.scalar(epsilon))
        inverse = graph.emit("Reciprocal", graph.emit("Sqrt", variance))
        return cls(graph.emit("Mul", centred, inverse), inverse, tuple(axes), tuple(sizes))

    def gradient(self, graph: GraphBuilder, upstream: str) -> str:
        """The gradient with respect to x: inverse (g - mean(g) - values mean(g values)).

        Source: Ioffe and Szegedy 2015, section 3, with the sums over the centred values dropped, which are zero.

        Args:
            graph: where to write.
            upstream: g, the gradient with respect to ``values``.
        """
        share = graph.scalar(1 / prod(self.sizes))
        level = graph.emit("Mul", in_stages(graph, upstream, self.axes, self.sizes, keepdims=1), share)
        product = in_stages(graph, graph.emit("Mul", upstream, self.values), self.axes, self.sizes, keepdims=1)
        along = graph.emit("Mul", self.values, graph.emit("Mul", product, share))
        rest = graph.emit("Sub", graph.emit("Sub", upstream, level), along)
        return graph.emit("Mul", rest, self.inverse)
