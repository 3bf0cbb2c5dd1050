"""Gradients of convolution, one- and two-dimensional."""

from collections.abc import Mapping
from math import prod

from server_bridge.bundles.gradients.site import Site
from server_bridge.bundles.gradients.windows import Windows


def convolution(site: Site) -> Mapping[int, str]:
    """``W * x + b`` with stride, padding, dilation and groups."""
    weight = site.fixed(site.shape(1), "the weight")
    if len(weight) not in (3, 4):
        raise site.refusal(f"{len(weight) - 2} spatial dimensions; 1 and 2 have a gradient rule")
    windows = Windows.of(site, weight[2:])
    groups = site.integer("group", 1)
    gradients = {}
    if 0 in site.wanted:
        attributes = windows.transposed()
        gradients[0] = site.graph.emit("ConvTranspose", site.upstream, site.node.input[1], group=groups, **attributes)
    if 1 in site.wanted:
        gradients[1] = _weight_gradient(site, windows, weight, groups)
    if 2 in site.wanted:
        axes = [0, *range(2, len(weight))]
        gradients[2] = site.graph.sum_over(site.upstream, axes, keepdims=0)
    return gradients


def _weight_gradient(site: Site, windows: Windows, weight: tuple[int, ...], groups: int) -> str:
    """Products of taps and upstream, by im2col and matrix products.

    A product per sample and a sum over samples, unless those products would outweigh their factors
    (deep layers: many channels, few positions); then one product over all samples.
    """
    graph = site.graph
    outputs, taps, positions = weight[0] // groups, weight[1] * prod(weight[2:]), prod(windows.count)
    columns = graph.reshape(_columns(site, windows), (0, groups, taps, positions))
    upstream = graph.reshape(site.upstream, (0, groups, outputs, positions))
    if outputs * taps <= (outputs + taps) * positions:
        turned = graph.emit("Transpose", upstream, perm=(0, 1, 3, 2))
        product = graph.sum_over(graph.emit("MatMul", columns, turned), [0], keepdims=0)
    else:
        left = graph.reshape(graph.emit("Transpose", columns, perm=(1, 2, 0, 3)), (groups, taps, -1))
        right = graph.reshape(graph.emit("Transpose", upstream, perm=(1, 0, 3, 2)), (groups, -1, outputs))
        product = graph.emit("MatMul", left, right)
    return graph.reshape(graph.emit("Transpose", product, perm=(0, 2, 1)), weight)


def _columns(site: Site, windows: Windows) -> str:
    """The input as (n, channels, taps, positions)."""
    graph, image = site.graph, site.node.input[0]
    positions = prod(windows.count)
    channels = site.fixed(site.shape(0)[1:2], "the number of channels")[0]
    if windows.padding:
        image = graph.emit("Pad", image, graph.integers((0, 0, *windows.begin, 0, 0, *windows.end)))
    slices = [
        graph.reshape(_slice(site, windows, image, tap), (0, channels, 1, positions)) for tap in windows.offsets()
    ]
    if len(slices) == 1:
        return slices[0]
    return graph.emit("Concat", *slices, axis=2)


def _slice(site: Site, windows: Windows, image: str, tap: tuple[int, ...]) -> str:
    """What one tap sees in every window."""
    if windows.count == windows.padded:
        return image
    ends = [start + (n - 1) * step + 1 for start, n, step in zip(tap, windows.count, windows.strides, strict=True)]
    axes = range(2, 2 + len(tap))
    graph = site.graph
    bounds = (tap, ends, list(axes), windows.strides)
    return graph.emit("Slice", image, *(graph.integers(values) for values in bounds))
