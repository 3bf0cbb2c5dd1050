"""Small tensors side by side in a flat one, so that an optimiser has few nodes for them.

A node costs about half a microsecond besides its work: for a dense net of four tensors and 10,000 parameters that was
most of Adam's time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

from onnx import helper

from server_bridge.bundles.gradients.graph import GraphBuilder

PACKED = "packed"
SMALL_MAX = 16_384
"""Elements of a tensor that is packed at most: above, copying it costs more than the nodes."""


@dataclass(frozen=True)
class Pack:
    """Tensors of known shapes, in order; possibly none.

    Args:
        shapes: by tensor.
    """

    shapes: Mapping[str, tuple[int, ...]]

    @property
    def size(self) -> int:
        """Elements in all."""
        return sum(prod(shape) for shape in self.shapes.values())

    def gathered(self, graph: GraphBuilder, values: Mapping[str, str]) -> dict[str, str]:
        """The values, those of the pack as one flat value under ``packed``."""
        if not self.shapes:
            return dict(values)
        flat = [
            values[name] if len(shape) == 1 else graph.reshape(values[name], [-1])
            for name, shape in self.shapes.items()
        ]
        alone = {name: value for name, value in values.items() if name not in self.shapes}
        return {**alone, PACKED: graph.emit("Concat", *flat, axis=0)}

    def scattered(self, graph: GraphBuilder, values: Mapping[str, str]) -> dict[str, str]:
        """The reverse."""
        if not self.shapes:
            return dict(values)
        parts = [graph.fresh("part") for _ in self.shapes]
        sizes = graph.integers([prod(shape) for shape in self.shapes.values()])
        graph.nodes.append(helper.make_node("Split", [values[PACKED], sizes], parts, name=parts[0], axis=0))
        own = {
            name: part if len(shape) == 1 else graph.reshape(part, shape)
            for (name, shape), part in zip(self.shapes.items(), parts, strict=True)
        }
        return {**{name: value for name, value in values.items() if name != PACKED}, **own}


NOTHING_PACKED = Pack(MappingProxyType({}))


def small_tensors(names: Sequence[str], shapes: Mapping[str, Sequence[int | None]]) -> Pack:
    """The tensors that are worth packing: two or more, each small."""
    small = {
        name: tuple(size for size in shapes[name] if size is not None)
        for name in names
        if 0 < prod(size or 0 for size in shapes[name]) <= SMALL_MAX
    }
    return Pack(small) if len(small) > 1 and PACKED not in names else NOTHING_PACKED
