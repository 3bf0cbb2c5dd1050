"""Gradients of pooling."""

from collections.abc import Mapping
from math import prod

import numpy as np
from numpy.typing import NDArray

from server_bridge.bundles.gradients.halving import halved_gradient, halves
from server_bridge.bundles.gradients.site import Site
from server_bridge.bundles.gradients.windows import Windows


def max_pool(site: Site) -> Mapping[int, str]:
    """The largest of each window: the gradient goes where `Indices` says, the first of equals.

    Windows of two have a faster way of their own (`halving`). MaxUnpool is exact only where windows do not overlap,
    are not padded and ceil_mode is 0; elsewhere ScatterElements adds, slower and repeatable. (ScatterND's add races.)
    """
    if site.integer("storage_order", 0):
        raise site.refusal("attribute storage_order=1 has no gradient rule", "export it with storage_order=0")
    windows = _windows(site)
    if halves(windows) and not any(site.node.output[1:]):
        return {0: halved_gradient(site, windows)}
    graph, image = site.graph, site.node.input[0]
    if len(site.node.output) < 2:
        site.node.output.append(graph.fresh("indices"))
    elif not site.node.output[1]:
        site.node.output[1] = graph.fresh("indices")
    indices = site.node.output[1]
    if not (windows.overlapping or windows.padding or site.integer("ceil_mode", 0)):
        size = graph.emit("Shape", image)
        attributes = {"kernel_shape": windows.kernel, "strides": windows.strides}
        return {0: graph.emit("MaxUnpool", site.upstream, indices, size, **attributes)}
    flat = graph.integers((-1,))
    zeros = graph.emit("Expand", graph.scalar(0.0), graph.emit("Reshape", graph.emit("Size", image), flat))
    places, values = (graph.emit("Reshape", value, flat) for value in (indices, site.upstream))
    scattered = graph.emit("ScatterElements", zeros, places, values, axis=0, reduction="add")
    return {0: graph.reshape_like(scattered, image)}


def average_pool(site: Site) -> Mapping[int, str]:
    """The mean of each window: a product with a small matrix along each axis, which is exact for every geometry.

    A transposed convolution with ones would do as well, and takes several times as long.
    """
    windows = _windows(site)
    counted = bool(site.integer("count_include_pad", 0))
    channels = site.fixed(site.shape(0)[1:2], "the number of channels")[0]
    sizes, value, graph = list(windows.count), site.upstream, site.graph
    for axis, size in enumerate(windows.size):
        shares = _shares(windows, axis, counted=counted)
        after = prod(sizes[axis + 1 :])
        parted = graph.reshape(value, (0, -1, sizes[axis], after) if after > 1 else (0, -1, sizes[axis]))
        factors = (graph.constant(shares.T), parted) if after > 1 else (parted, graph.constant(shares))
        value = graph.emit("MatMul", *factors)
        sizes[axis] = size
    return {0: graph.reshape(value, (0, channels, *sizes))}


def global_average_pool(site: Site) -> Mapping[int, str]:
    """The mean over all positions; a product with a row of shares is faster than Expand."""
    graph = site.graph
    sizes = site.fixed(site.shape(0)[2:], "the input's spatial part")
    channels = site.fixed(site.shape(0)[1:2], "the number of channels")[0]
    shares = graph.constant(np.full((1, prod(sizes)), 1 / prod(sizes), dtype=np.float32))
    spread = graph.emit("MatMul", graph.reshape(site.upstream, (0, channels, 1)), shares)
    return {0: graph.reshape(spread, (0, channels, *sizes))}


def global_max_pool(site: Site) -> Mapping[int, str]:
    """The largest of all positions; the first of equals gets the gradient."""
    graph = site.graph
    sizes = site.fixed(site.shape(0)[2:], "the input's spatial part")
    channels = site.fixed(site.shape(0)[1:2], "the number of channels")[0]
    flat = graph.reshape(site.node.input[0], (0, channels, prod(sizes)))
    first = graph.emit("ArgMax", flat, axis=2, keepdims=1, select_last_index=0)
    places = graph.constant(np.arange(prod(sizes), dtype=np.int64))
    chosen = graph.emit("Cast", graph.emit("Equal", first, places), to=1)
    spread = graph.emit("Mul", chosen, graph.reshape(site.upstream, (0, channels, 1)))
    return {0: graph.reshape(spread, (0, channels, *sizes))}


def _windows(site: Site) -> Windows:
    """The geometry, if onnx infers as many windows as onnxruntime makes.

    Up to opset 21 onnx counts a last window of ceil_mode that begins in the padding, which neither onnxruntime nor
    torch makes: all shapes after it would be wrong.
    """
    windows = Windows.of(site, site.integers("kernel_shape", ()))
    if site.integer("ceil_mode", 0):
        for axis, count in enumerate(windows.count):
            last = (count - 1) * windows.strides[axis] - windows.begin[axis]
            if count > 1 and last >= windows.size[axis]:
                raise site.refusal(
                    "attribute ceil_mode=1 with a last window that begins in the padding has no gradient rule",
                    "export the model at opset 22, or use ceil_mode=0",
                )
    return windows


def _shares(windows: Windows, axis: int, *, counted: bool) -> NDArray[np.float32]:
    """(windows, positions) of an axis: a position's part in a window's mean.

    ``counted``: padding belongs to the divisor, but what ceil_mode lies beyond it does not (as in torch).
    """
    size, begin, gap = windows.size[axis], windows.begin[axis], windows.dilations[axis]
    shares = np.zeros((windows.count[axis], size), dtype=np.float32)
    for window, row in enumerate(shares):
        taps = window * windows.strides[axis] - begin + np.arange(windows.kernel[axis]) * gap
        inside = taps[(taps >= 0) & (taps < size)]
        divisor = int((taps < size + windows.end[axis]).sum()) if counted else len(inside)
        row[inside] = 1 / divisor
    return shares
