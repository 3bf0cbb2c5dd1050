"""Where a net's layers end: the values that everything after them is made from."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import onnx

from edge_agent.errors import DataError
from server_bridge.bundles.checks import opset
from server_bridge.bundles.gradients.expansion import is_definable
from server_bridge.bundles.gradients.forward import Forward
from server_bridge.bundles.gradients.graph import needed_nodes, read_by
from server_bridge.bundles.gradients.rules import RULES

_WITH_WEIGHTS = frozenset(
    {
        *("Conv", "ConvTranspose", "Gemm", "MatMul", "LSTM", "GRU", "RNN"),
        *("QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger"),
    }
)
_CHANNELS_FIRST = frozenset({"Conv", "ConvTranspose", "QLinearConv", "ConvInteger"})
_LAYOUT = frozenset({"Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})


@dataclass(frozen=True)
class Layer:
    """A layer's end.

    Args:
        value: the name of its output.
        sizes: of one sample's output, without the batch.
        channels_first: whether the first of these are the channels (convolutions), or the last (dense layers).
        trains: whether a gradient can come to it from the output.
    """

    value: str
    sizes: tuple[int, ...]
    channels_first: bool
    trains: bool

    @property
    def channels(self) -> int:
        """How many."""
        return self.sizes[0] if self.channels_first else self.sizes[-1]

    @property
    def places(self) -> tuple[int, ...]:
        """The spatial sizes, or the steps of a sequence."""
        return self.sizes[1:] if self.channels_first else self.sizes[:-1]


@dataclass(frozen=True)
class Backbone:
    """A net, read as a chain of layers and a head.

    Args:
        forward: the net.
        layers: from the input to the output, without the head.
        features: the value that the head works on.
    """

    forward: Forward
    layers: tuple[Layer, ...]
    features: str


@dataclass(frozen=True)
class _Cut:
    """A value through which every path from the input to the output leads; ``weighted`` nodes lie before it."""

    value: str
    place: int
    weighted: int


def read_backbone(forward: Forward, at: Sequence[str] = ()) -> Backbone:
    """Find the layers.

    A layer ends at a value that all later ones depend on alone: a residual block is one layer. It begins with a
    node that has weights (a convolution, a matrix product, a recurrent net) and has what follows until the next:
    normalisation, activation, pooling. The last layer is the head.

    Args:
        forward: a checked model with one branch of layers.
        at: names of the values where layers end; found by the rule above if empty.

    Raises:
        DataError: no node has weights, or a named value is no end of a layer (those that can be are named).
    """
    nodes = needed_nodes(forward.model.graph.node, [forward.model.graph.output[0].name])
    data = _data_values(forward, nodes)
    weighted = [_has_weights(node, data) for node in nodes]
    cuts = _cuts(forward, nodes, data, weighted)
    total = sum(weighted)
    before_head = [cut for cut in cuts if cut.weighted < total]
    if total == 0 or not before_head:
        raise DataError("the model has no layer with weights whose input all later values depend on")
    blocked = max((place for place, node in enumerate(nodes) if _blocks(node, data, forward)), default=-1)
    found = _named(before_head, at) if at else _found(before_head, nodes, forward)
    layers = [_layer(cut, nodes, weighted, forward, blocked) for cut in found]
    if at and None in layers:
        unfit = at[layers.index(None)]
        raise DataError(f"value {unfit!r} has shape {forward.shapes.get(unfit)}: only the batch may be free")
    return Backbone(forward, tuple(layer for layer in layers if layer is not None), before_head[-1].value)


def _data_values(forward: Forward, nodes: Sequence[onnx.NodeProto]) -> set[str]:
    """The values that depend on the input."""
    data = {value.name for value in forward.model.graph.input}
    for node in nodes:
        if data.intersection(read_by(node)):
            data.update(name for name in node.output if name)
    return data


def _has_weights(node: onnx.NodeProto, data: set[str]) -> bool:
    others = [name for name in node.input if name and name not in data]
    return node.op_type in _WITH_WEIGHTS and bool(others) and bool(data.intersection(node.input))


def _blocks(node: onnx.NodeProto, data: set[str], forward: Forward) -> bool:
    """Whether a gradient would have to pass a node and cannot; sizes that are read off a value need none."""
    ruled = node.domain in ("", "ai.onnx") and node.op_type in RULES
    ruled = ruled or is_definable(node, opset(forward.model))
    floats = any(forward.is_float(name) for name in data.intersection(read_by(node)))
    return not ruled and floats and any(forward.is_float(name) for name in node.output if name)


def _cuts(forward: Forward, nodes: Sequence[onnx.NodeProto], data: set[str], weighted: Sequence[bool]) -> list[_Cut]:
    """In the nodes' order; whole numbers (sizes for a Reshape) are not counted as paths."""
    inputs = [value.name for value in forward.model.graph.input]
    last_read: dict[str, int] = {}
    for place, node in enumerate(nodes):
        last_read.update(dict.fromkeys(read_by(node), place))
    live = {name for name in inputs if forward.is_float(name)}
    cuts = [_Cut(inputs[0], -1, 0)] if len(live) == 1 else []
    count = 0
    for place, node in enumerate(nodes):
        count += weighted[place]
        live.update(name for name in node.output if name in data and forward.is_float(name))
        live = {name for name in live if last_read.get(name, -1) > place}
        if len(live) == 1 and node.output[0] in live:
            cuts.append(_Cut(node.output[0], place, count))
    return cuts


def _named(cuts: Sequence[_Cut], at: Sequence[str]) -> list[_Cut]:
    by_value = {cut.value: cut for cut in cuts}
    for name in at:
        if name not in by_value:
            raise DataError(f"no layer can end at {name!r}", f"one can at: {', '.join(by_value)}")
    return sorted((by_value[name] for name in at), key=lambda cut: cut.place)


def _found(cuts: Sequence[_Cut], nodes: Sequence[onnx.NodeProto], forward: Forward) -> list[_Cut]:
    """Of the values after the same number of weighted nodes the last before the layout changes."""
    ends: dict[int, list[_Cut]] = {}
    for cut in cuts:
        if cut.weighted > 0:
            ends.setdefault(cut.weighted, []).append(cut)
    return [_last_of_its_layout(run, nodes) for run in ends.values()]


def _last_of_its_layout(run: Sequence[_Cut], nodes: Sequence[onnx.NodeProto]) -> _Cut:
    for before, cut in pairwise(run):
        between = [node.op_type for node in nodes[before.place + 1 : cut.place + 1]]
        if _LAYOUT.intersection(between):
            return before
    return run[-1]


def _layer(
    cut: _Cut, nodes: Sequence[onnx.NodeProto], weighted: Sequence[bool], forward: Forward, blocked: int
) -> Layer | None:
    """None where the sizes are not known: no proxy can be made to or from there."""
    batch, *rest = forward.shapes.get(cut.value, (0,))
    sizes = tuple(size for size in rest if size is not None)
    if batch is not None or len(sizes) != len(rest) or not sizes:
        return None
    made_by = [node for node, has in zip(nodes[: cut.place + 1], weighted, strict=False) if has]
    channels_first = len(sizes) > 1 and bool(made_by) and made_by[-1].op_type in _CHANNELS_FIRST
    return Layer(cut.value, sizes, channels_first, trains=cut.place >= blocked)
