"""The gradient of transposed convolution: the convolution that it is the transpose of, seen from the other side."""

from collections.abc import Mapping, Sequence

from server_bridge.bundles.gradients.convolution import RANKS, weight_gradient
from server_bridge.bundles.gradients.filters import Filters
from server_bridge.bundles.gradients.site import Site
from server_bridge.bundles.gradients.sums import by_channel
from server_bridge.bundles.gradients.windows import Windows


def transposed_convolution(site: Site) -> Mapping[int, str]:
    """``conv(W)' x + b``: the input's gradient is ``conv(W)`` of the upstream one; for W they change places."""
    weight = site.fixed(site.shape(1), "the weight")
    if len(weight) - 2 not in RANKS:
        raise site.refusal(f"{len(weight) - 2} spatial dimensions; 1, 2 and 3 have a gradient rule")
    windows = _windows(site, weight[2:])
    groups = site.integer("group", 1)
    gradients = {}
    if 0 in site.wanted:
        gradients[0] = site.graph.emit(
            "Conv",
            site.upstream,
            site.node.input[1],
            group=groups,
            kernel_shape=windows.kernel,
            strides=windows.strides,
            dilations=windows.dilations,
            pads=(*windows.begin, *windows.end),
        )
    if 1 in site.wanted:
        filters = Filters(site.graph, site.upstream, site.node.input[0], windows, weight, groups)
        gradients[1] = weight_gradient(filters)
    if 2 in site.wanted:
        gradients[2] = by_channel(site.graph, site.upstream, windows.size)
    return gradients


def _windows(site: Site, kernel: Sequence[int]) -> Windows:
    """Windows of the convolution from the node's output to its input.

    Source: the ONNX specification of ConvTranspose: ``output_shape`` and SAME modes give the padding, of which an odd
        one lies before the image but for SAME_UPPER.
    """
    rank = len(kernel)
    size = site.fixed(site.output_shape[2:], "the output's spatial part")
    count = site.fixed(site.shape(0)[2:], "the input's spatial part")
    strides, dilations = site.integers("strides", [1] * rank), site.integers("dilations", [1] * rank)
    extra = site.integers("output_padding", [0] * rank)
    for surplus, step in zip(extra, strides, strict=True):
        if surplus >= step:
            raise site.refusal(f"attribute output_padding={list(extra)} is not below the strides {list(strides)}")
    whole = [
        (n - 1) * step + (taps - 1) * gap + 1 + surplus
        for n, step, taps, gap, surplus in zip(count, strides, kernel, dilations, extra, strict=True)
    ]
    totals = [reached - length for reached, length in zip(whole, size, strict=True)]
    begin, end = _padding(site, totals)
    return Windows(size, tuple(kernel), strides, dilations, begin, end, count)


def _padding(site: Site, totals: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    rank, mode = len(totals), site.text("auto_pad", "NOTSET")
    if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise site.refusal(f"attribute auto_pad={mode!r} is unknown")
    given = site.integers("output_shape", ())
    if mode == "NOTSET" and not given:
        pads = site.integers("pads", [0] * 2 * rank)
        return pads[:rank], pads[rank:]
    if min(totals) < 0:
        raise site.refusal(
            f"attribute output_shape={list(given)} is larger than the windows reach and has no gradient rule",
            "use output_padding",
        )
    smaller = tuple(total // 2 for total in totals)
    larger = tuple(total - half for total, half in zip(totals, smaller, strict=True))
    return (smaller, larger) if mode == "SAME_UPPER" else (larger, smaller)
