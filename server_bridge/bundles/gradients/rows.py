"""The rows of a two-dimensional image as a kernel's rows see them: in blocks of a stride."""

from dataclasses import dataclass
from typing import Self

from server_bridge.bundles.gradients.graph import GraphBuilder
from server_bridge.bundles.gradients.windows import Windows


@dataclass(frozen=True)
class Place:
    """Where a row of the kernel lies: window ``a`` sees row ``begin`` of block ``a + shift``."""

    shift: int
    begin: int


@dataclass(frozen=True)
class Rows:
    """An image's rows in blocks as high as the stride: window ``a`` begins at block ``a``, padding aside.

    Args:
        size: rows of the image.
        step: rows of a block.
        windows: down the image.
        places: of the kernel's rows, in order.
    """

    size: int
    step: int
    windows: int
    places: tuple[Place, ...]

    @classmethod
    def of(cls, windows: Windows) -> Self:
        """The rows of a two-dimensional geometry."""
        step, gap, begin = windows.strides[0], windows.dilations[0], windows.begin[0]
        places = [Place(*divmod(tap * gap - begin, step)) for tap in range(windows.kernel[0])]
        return cls(windows.size[0], step, windows.count[0], tuple(places))

    @property
    def blocks(self) -> int:
        """Blocks, the last perhaps filled up."""
        return -(-self.size // self.step)

    def whole(self, graph: GraphBuilder, image: str) -> str:
        """The image with zeros below, up to whole blocks."""
        missing = self.blocks * self.step - self.size
        return graph.emit("Pad", image, graph.integers((0, 0, 0, 0, 0, 0, missing, 0))) if missing else image

    def matched(self, place: Place) -> tuple[int, int]:
        """The windows, first and past the last, whose block lies in the image."""
        return max(0, -place.shift), min(self.windows, self.blocks - place.shift)


def cut(graph: GraphBuilder, value: str, axis: int, begin: int, end: int, size: int) -> str:
    """A part of an axis of a known size; nothing is written for the whole of it."""
    if (begin, end) == (0, size):
        return value
    return graph.emit("Slice", value, *(graph.integers([bound]) for bound in (begin, end, axis)))
