"""The gradient of convolution: of its input and bias here, of its weight by whichever way suits the shape."""

from collections.abc import Mapping

from server_bridge.bundles.gradients import column_products, depthwise, selections
from server_bridge.bundles.gradients.filters import Filters
from server_bridge.bundles.gradients.site import Site
from server_bridge.bundles.gradients.sums import by_channel

RANKS = (1, 2, 3)
"""Spatial dimensions that have a rule."""


def convolution(site: Site) -> Mapping[int, str]:
    """``W * x + b`` with stride, padding, dilation and groups."""
    weight = site.fixed(site.shape(1), "the weight")
    if len(weight) - 2 not in RANKS:
        raise site.refusal(f"{len(weight) - 2} spatial dimensions; 1, 2 and 3 have a gradient rule")
    filters = Filters.of(site, weight)
    gradients = {}
    if 0 in site.wanted:
        gradients[0] = _input_gradient(site, filters)
    if 1 in site.wanted:
        gradients[1] = weight_gradient(filters)
    if 2 in site.wanted:
        gradients[2] = by_channel(site.graph, site.upstream, filters.windows.count)
    return gradients


def _input_gradient(site: Site, filters: Filters) -> str:
    if depthwise.has_small_maps(filters):
        return depthwise.input_gradient(filters, site.node.input[1])
    attributes = filters.windows.transposed()
    return site.graph.emit("ConvTranspose", site.upstream, site.node.input[1], group=filters.groups, **attributes)


def weight_gradient(filters: Filters) -> str:
    """Measured on one thread, batch 32; the ways differ by factors of 2 to 10, and in the memory they need."""
    if filters.depthwise:
        return depthwise.weight_gradient(filters)
    if selections.suits(filters):
        return selections.weight_gradient(filters)
    return column_products.weight_gradient(filters)
