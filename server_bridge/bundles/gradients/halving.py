"""The gradient of pooling by halves: the largest of two, axis by axis, without `Indices`.

onnxruntime's MaxPool takes a slow path where it gives `Indices` (32 x 32 x 32 x 32 float32: 3.8 ms with MaxUnpool,
1.8 ms with what is written here, all of it measured at one thread).
"""

from math import prod

import onnx

from server_bridge.bundles.gradients.graph import GraphBuilder
from server_bridge.bundles.gradients.site import Site
from server_bridge.bundles.gradients.windows import Windows


def halves(windows: Windows) -> bool:
    """Whether every axis is left alone or halved, nothing padded; a rest of one position is in no window."""
    pairs = set(zip(windows.kernel, windows.strides, strict=True))
    spans_itself = windows.span == windows.kernel
    fits = all(n * step <= size for n, step, size in zip(windows.count, windows.strides, windows.size, strict=True))
    return pairs <= {(1, 1), (2, 2)} and (2, 2) in pairs and fits and spans_itself and not windows.padding


def halved_gradient(site: Site, windows: Windows) -> str:
    """The gradient of the input; of equals the first in row-major order has it.

    The window's winner is sought axis by axis, the first axis first: between two rows (each the largest of its own
    columns), then between two columns of the row that won.

    Args:
        site: of a MaxPool whose windows are `halves`.
        windows: its geometry.
    """
    graph, gradient = site.graph, site.upstream
    channels = site.fixed(site.shape(0)[1:2], "the number of channels")[0]
    covered = tuple(n * step for n, step in zip(windows.count, windows.strides, strict=True))
    image = _cropped(graph, site.node.input[0], windows.size, covered)
    sizes = list(windows.count)
    for axis, taps in enumerate(windows.kernel):
        if taps == 2:
            compared = _pooled_after(graph, image, windows, axis)
            parted = (-1, windows.count[axis], 2, prod(windows.count[axis + 1 :]))
            gradient = _given_to_larger(graph, gradient, compared, parted)
        sizes[axis] = covered[axis]
    whole = graph.reshape(gradient, (-1, channels, *sizes))
    rest = [size - used for size, used in zip(windows.size, covered, strict=True)]
    if not any(rest):
        return whole
    return graph.emit("Pad", whole, graph.integers((0, 0, *[0] * len(rest), 0, 0, *rest)))


def _given_to_larger(graph: GraphBuilder, gradient: str, compared: str, parted: tuple[int, ...]) -> str:
    """Two places for each value of the gradient; the place of the larger value, or the first, has it.

    Args:
        parted: shape of what is compared, the pair on axis 2.
    """
    pairs = graph.reshape(compared, parted)
    first, second = (
        graph.emit("Slice", pairs, graph.integers((start,)), graph.integers((start + 1,)), graph.integers((2,)))
        for start in (0, 1)
    )
    wins = graph.emit("Cast", graph.emit("GreaterOrEqual", first, second), to=onnx.TensorProto.FLOAT)
    whole = graph.reshape(gradient, (parted[0], parted[1], 1, parted[3]))
    to_first = graph.emit("Mul", whole, wins)
    return graph.emit("Concat", to_first, graph.emit("Sub", whole, to_first), axis=2)


def _pooled_after(graph: GraphBuilder, image: str, windows: Windows, axis: int) -> str:
    """The image with its axes after ``axis`` pooled."""
    kernel = [1] * (axis + 1) + list(windows.kernel[axis + 1 :])
    if set(kernel) == {1}:
        return image
    return graph.emit("MaxPool", image, kernel_shape=kernel, strides=kernel)


def _cropped(graph: GraphBuilder, image: str, size: tuple[int, ...], covered: tuple[int, ...]) -> str:
    if size == covered:
        return image
    axes = list(range(2, 2 + len(size)))
    bounds = ([0] * len(size), covered, axes)
    return graph.emit("Slice", image, *(graph.integers(values) for values in bounds))
