"""Gradients of pooling."""

from collections.abc import Mapping
from math import prod

import numpy as np
from numpy.typing import NDArray

from server_bridge.bundles.gradients.site import Site
from server_bridge.bundles.gradients.windows import Windows


def max_pool(site: Site) -> Mapping[int, str]:
    """The largest of each window: the gradient goes where `Indices` says.

    MaxUnpool is exact only where windows do not overlap, are not padded and ceil_mode is 0; elsewhere
    ScatterElements adds, slower and repeatable. (ScatterND's add races.)
    """
    if site.integer("storage_order", 0):
        raise site.refusal("attribute storage_order=1 has no gradient rule")
    windows = Windows.of(site, site.integers("kernel_shape", ()))
    graph, image = site.graph, site.node.input[0]
    if len(site.node.output) < 2:
        site.node.output.append(graph.fresh("indices"))
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
    """The mean of each window: each of its positions gets an equal share."""
    windows = Windows.of(site, site.integers("kernel_shape", ()))
    if any(reach > padded for reach, padded in zip(windows.reach, windows.padded, strict=True)):
        raise site.refusal(
            "attribute ceil_mode=1 with windows beyond the input has no gradient rule", "use ceil_mode=0"
        )
    graph = site.graph
    channels = site.fixed(site.shape(0)[1:2], "the number of channels")[0]
    shares = graph.emit("Mul", site.upstream, graph.constant(1 / _counts(site, windows)))
    ones = graph.constant(np.ones((channels, 1, *windows.kernel), dtype=np.float32))
    return {0: graph.emit("ConvTranspose", shares, ones, group=channels, **windows.transposed())}


def global_average_pool(site: Site) -> Mapping[int, str]:
    """The mean over all positions; a product with a row of shares is faster than Expand."""
    graph = site.graph
    sizes = site.fixed(site.shape(0)[2:], "the input's spatial part")
    channels = site.fixed(site.shape(0)[1:2], "the number of channels")[0]
    shares = graph.constant(np.full((1, prod(sizes)), 1 / prod(sizes), dtype=np.float32))
    spread = graph.emit("MatMul", graph.reshape(site.upstream, (0, channels, 1)), shares)
    return {0: graph.reshape(spread, (0, channels, *sizes))}


def _counts(site: Site, windows: Windows) -> NDArray[np.float32]:
    """(1, 1, windows ...): the positions a window's mean divides by."""
    if site.integer("count_include_pad", 0):
        return np.full((1, 1, *windows.count), prod(windows.kernel), dtype=np.float32)
    counts = np.ones((1, 1), dtype=np.float32)
    for axis, number in enumerate(windows.count):
        starts = np.arange(number) * windows.strides[axis] - windows.begin[axis]
        taps = starts[:, None] + np.arange(windows.kernel[axis]) * windows.dilations[axis]
        inside = ((taps >= 0) & (taps < windows.size[axis])).sum(axis=1).astype(np.float32)
        counts = counts[..., None] * inside
    return counts
