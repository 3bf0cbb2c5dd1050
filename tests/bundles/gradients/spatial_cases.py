"""Convolutions, pooling and normalisations beyond the plain ones, for central differences and repeats."""

from typing import Any

from tests.bundles.gradients.cases import Case, node


def _conv(name: str, shape: tuple[int, ...], weight: tuple[int, ...], **attributes: Any) -> Case:
    return Case(f"conv {name}", shape, [node("Conv", "h w b", **attributes)], {"w": weight, "b": weight[:1]})


def _spread(name: str, shape: tuple[int, ...], weight: tuple[int, ...], **attributes: Any) -> Case:
    bias = (weight[1] * attributes.get("group", 1),)
    tensors = {"w": weight, "b": bias}
    return Case(f"transposed conv {name}", shape, [node("ConvTranspose", "h w b", **attributes)], tensors)


def _pool(operator: str, name: str, shape: tuple[int, ...], **attributes: Any) -> Case:
    return Case(f"{operator} {name}", shape, [node(operator, **attributes)])


def _normed(name: str, operator: str, shape: tuple[int, ...], size: tuple[int, ...], **attributes: Any) -> Case:
    """A Tanh above, or a mean over the normalised values would have no gradient."""
    opset = attributes.pop("opset", 17)
    nodes = [node(operator, "h w b", "l", **attributes), node("Tanh", "l")]
    return Case(f"{operator} {name}", shape, nodes, {"w": size, "b": size}, opset=opset)


SPATIAL_CASES = [
    _conv("2d same, upper, strided", (2, 7, 6), (3, 2, 3, 2), auto_pad="SAME_UPPER", strides=[2, 3]),
    _conv("2d same, lower, strided", (2, 7, 6), (3, 2, 2, 3), auto_pad="SAME_LOWER", strides=[2, 2]),
    _conv("2d by column", (8, 9, 9), (3, 8, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2]),
    _conv("2d by column, few channels", (3, 9, 9), (3, 3, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2]),
    _conv("2d by column, grouped", (8, 9, 9), (4, 4, 3, 3), group=2, pads=[1, 1, 1, 1]),
    _conv("2d by tap, grouped", (8, 4, 4), (4, 4, 3, 3), group=2, pads=[1, 1, 1, 1]),
    _conv("2d wide", (2, 2, 80), (2, 2, 1, 3), pads=[0, 1, 0, 1]),
    _conv("2d depthwise by rows", (3, 10, 10), (3, 1, 3, 3), group=3, pads=[1, 1, 1, 1]),
    _conv("2d depthwise by rows, strided", (3, 16, 16), (3, 1, 3, 3), group=3, pads=[0, 1, 2, 1], strides=[2, 2]),
    _conv("2d depthwise, large", (2, 24, 36), (2, 1, 3, 2), group=2, pads=[1, 1, 1, 0]),
    _conv("2d depthwise by tap", (2, 2, 60), (2, 1, 1, 3), group=2, pads=[0, 1, 0, 1]),
    _conv("2d depthwise, twice the channels", (2, 6, 6), (4, 1, 3, 3), group=2, strides=[2, 2]),
    _conv("1d depthwise, causal", (3, 12), (3, 1, 3), group=3, dilations=[2], pads=[4, 0]),
    _conv("1d depthwise, long", (2, 90), (2, 1, 3), group=2, dilations=[4], pads=[8, 0]),
    _conv("3d", (2, 3, 4, 3), (2, 2, 2, 3, 2), pads=[0, 1, 0, 1, 1, 0], strides=[1, 2, 1]),
    _spread("1d", (2, 6), (2, 3, 4)),
    _spread("1d strided", (2, 6), (2, 3, 4), strides=[3], pads=[1, 2], output_padding=[2]),
    _spread("2d", (3, 4, 3), (3, 2, 3, 2), strides=[2, 1], pads=[1, 0, 0, 1]),
    _pool("MaxPool", "dilated", (2, 11), kernel_shape=[3], strides=[2], dilations=[2]),
    _pool("MaxPool", "2d overlapping, to the ceiling", (2, 8, 8), kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1),
    _pool("AveragePool", "to the ceiling", (2, 8), kernel_shape=[3], strides=[2], ceil_mode=1),
    _pool("AveragePool", "2d same", (2, 7, 5), kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_UPPER"),
    _pool("GlobalMaxPool", "2d", (3, 4, 2)),
    _normed("of the last axis", "LayerNormalization", (3, 5), (5,)),
    _normed("of two axes", "LayerNormalization", (3, 5), (3, 5), axis=1, epsilon=1e-2),
    _normed("without bias of its own shape", "LayerNormalization", (3, 5), (1, 5), axis=-2),
    _normed("1d", "InstanceNormalization", (3, 6), (3,)),
    _normed("2d", "InstanceNormalization", (2, 4, 3), (2,), epsilon=1e-2),
    _normed("scaled by channel", "GroupNormalization", (4, 5), (4,), num_groups=2, stash_type=1, opset=21),
]
