"""The geometry of sliding windows, shared by convolution and pooling."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Self

from server_bridge.bundles.gradients.graph import GraphBuilder
from server_bridge.bundles.gradients.site import Site


@dataclass(frozen=True)
class Windows:
    """Windows over the spatial dimensions; every tuple has one entry a dimension.

    Args:
        size: the input's.
        kernel: taps.
        strides: between windows.
        dilations: between taps.
        begin: padding before.
        end: padding after.
        count: windows.
    """

    size: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    count: tuple[int, ...]

    @classmethod
    def of(cls, site: Site, kernel: Sequence[int]) -> Self:
        """The windows of a Conv or pooling node.

        Raises:
            DataError: a spatial dimension is free, or the padding mode is unknown.
        """
        rank = len(kernel)
        size = site.fixed(site.shape(0)[2:], "the input's spatial part")
        count = site.fixed(site.output_shape[2:], "the output's spatial part")
        strides = site.integers("strides", [1] * rank)
        dilations = site.integers("dilations", [1] * rank)
        begin, end = _padding(site, kernel, strides, dilations, size, count)
        return cls(size, tuple(kernel), strides, dilations, begin, end, count)

    @property
    def span(self) -> tuple[int, ...]:
        """Input positions from a window's first tap to its last, both included."""
        return tuple((taps - 1) * gap + 1 for taps, gap in zip(self.kernel, self.dilations, strict=True))

    @property
    def reach(self) -> tuple[int, ...]:
        """Padded input positions that the windows cover."""
        return tuple((n - 1) * step + span for n, step, span in zip(self.count, self.strides, self.span, strict=True))

    @property
    def padded(self) -> tuple[int, ...]:
        """The input's size with its padding."""
        return tuple(sum(sizes) for sizes in zip(self.begin, self.size, self.end, strict=True))

    @property
    def overlapping(self) -> bool:
        """Whether an input position may lie in two windows."""
        return any(span > step for span, step in zip(self.span, self.strides, strict=True))

    @property
    def padding(self) -> bool:
        """Whether there is any."""
        return any(self.begin) or any(self.end)

    def offsets(self) -> list[tuple[int, ...]]:
        """The first window's taps, last dimension fastest, as weights are laid out."""
        taps = [range(0, n * gap, gap) for n, gap in zip(self.kernel, self.dilations, strict=True)]
        return list(product(*taps))

    def seen(self, graph: GraphBuilder, image: str, tap: tuple[int, ...]) -> str:
        """What one tap sees in every window of a padded image, (n, channels, *count)."""
        if self.count == self.padded:
            return image
        bounds = zip(tap, self.count, self.strides, strict=True)
        ends = [start + (count - 1) * step + 1 for start, count, step in bounds]
        axes = list(range(2, 2 + len(tap)))
        return graph.emit("Slice", image, *(graph.integers(values) for values in (tap, ends, axes, self.strides)))

    def pad(self, graph: GraphBuilder, image: str) -> str:
        """An image with its padding, zeros."""
        if not self.padding:
            return image
        return graph.emit("Pad", image, graph.integers((0, 0, *self.begin, 0, 0, *self.end)))

    def transposed(self) -> dict[str, Sequence[int]]:
        """Attributes of the ConvTranspose that carries gradients back to the input's exact size."""
        surplus = [wide - reach for wide, reach in zip(self.padded, self.reach, strict=True)]
        end = [pad - min(extra, 0) for pad, extra in zip(self.end, surplus, strict=True)]
        return {
            "kernel_shape": self.kernel,
            "strides": self.strides,
            "dilations": self.dilations,
            "pads": (*self.begin, *end),
            "output_padding": [max(extra, 0) for extra in surplus],
        }


def _padding(
    site: Site,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    size: Sequence[int],
    count: Sequence[int],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    rank, mode = len(kernel), site.text("auto_pad", "NOTSET")
    if mode == "NOTSET":
        pads = site.integers("pads", [0] * 2 * rank)
        return pads[:rank], pads[rank:]
    if mode == "VALID":
        return (0,) * rank, (0,) * rank
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise site.refusal(f"attribute auto_pad={mode!r} is unknown")
    totals = [
        max((n - 1) * step + (taps - 1) * gap + 1 - length, 0)
        for n, step, taps, gap, length in zip(count, strides, kernel, dilations, size, strict=True)
    ]
    smaller = tuple(total // 2 for total in totals)
    larger = tuple(total - half for total, half in zip(totals, smaller, strict=True))
    return (smaller, larger) if mode == "SAME_UPPER" else (larger, smaller)
