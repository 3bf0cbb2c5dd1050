"""Gradients of normalisations within a sample: by layer, by instance, by group."""

from collections.abc import Mapping
from math import prod

from server_bridge.bundles.gradients.site import Site, unbroadcast
from server_bridge.bundles.gradients.standardised import Standardised
from server_bridge.bundles.gradients.sums import by_channel, in_stages

_EPSILON = 1e-5
_FLOAT = 1


def layer_normalisation(site: Site) -> Mapping[int, str]:
    """Over the axes from ``axis`` on; the operator gives its mean and inverse deviation as further outputs."""
    _refuse_other_precision(site)
    shape = site.shape(0)
    first = site.integer("axis", -1) % len(shape)
    sizes = site.fixed(shape[first:], "the normalised part")
    graph, image = site.graph, site.node.input[0]
    mean, inverse = _statistics(site)
    values = graph.emit("Mul", graph.emit("Sub", image, mean), inverse)
    standardised = Standardised(values, inverse, tuple(range(first, len(shape))), sizes)
    gradients = {}
    if 0 in site.wanted:
        scaled = graph.emit("Mul", site.upstream, site.node.input[1])
        gradients[0] = standardised.gradient(graph, scaled)
    if 1 in site.wanted:
        gradients[1] = unbroadcast(graph, graph.emit("Mul", site.upstream, values), shape, site.shape(1))
    if 2 in site.wanted:
        gradients[2] = unbroadcast(graph, site.upstream, shape, site.shape(2))
    return gradients


def instance_normalisation(site: Site) -> Mapping[int, str]:
    """Every channel of every sample over its positions."""
    sizes = site.fixed(site.shape(0)[2:], "the input's spatial part")
    axes = range(2, 2 + len(sizes))
    graph = site.graph
    standardised = Standardised.of(graph, site.node.input[0], axes, sizes, site.number("epsilon", _EPSILON))
    gradients = {}
    if 0 in site.wanted:
        scale = graph.reshape(site.node.input[1], (1, -1, *[1] * len(sizes)))
        gradients[0] = standardised.gradient(graph, graph.emit("Mul", site.upstream, scale))
    if 1 in site.wanted:
        gradients[1] = by_channel(graph, graph.emit("Mul", site.upstream, standardised.values), sizes)
    if 2 in site.wanted:
        gradients[2] = by_channel(graph, site.upstream, sizes)
    return gradients


def group_normalisation(site: Site) -> Mapping[int, str]:
    """Groups of channels over all their positions; scale and bias a channel (opset 21; what 18 had is withdrawn)."""
    _refuse_other_precision(site)
    channels, *sizes = site.fixed(site.shape(0)[1:], "the input but for the batch")
    groups, positions = site.integer("num_groups", 1), prod(sizes)
    split = (0, groups, channels // groups, positions)
    graph = site.graph
    image, upstream = (graph.reshape(value, split) for value in (site.node.input[0], site.upstream))
    standardised = Standardised.of(graph, image, (2, 3), split[2:], site.number("epsilon", _EPSILON))
    gradients = {}
    if 0 in site.wanted:
        scale = graph.reshape(site.node.input[1], (1, groups, -1, 1))
        gradient = standardised.gradient(graph, graph.emit("Mul", upstream, scale))
        gradients[0] = graph.reshape(gradient, (0, channels, *sizes))
    if 1 in site.wanted:
        product = graph.emit("Mul", upstream, standardised.values)
        total = in_stages(graph, product, [0, 3], [positions], keepdims=0)
        gradients[1] = graph.reshape(total, (channels,))
    if 2 in site.wanted:
        gradients[2] = graph.reshape(in_stages(graph, upstream, [0, 3], [positions], keepdims=0), (channels,))
    return gradients


def _statistics(site: Site) -> tuple[str, str]:
    """The operator's own mean and inverse deviation, as outputs that it is made to give."""
    outputs = site.node.output
    for position, hint in ((1, "mean"), (2, "inverse_deviation")):
        if len(outputs) <= position:
            outputs.append(site.graph.fresh(hint))
        elif not outputs[position]:
            outputs[position] = site.graph.fresh(hint)
    return outputs[1], outputs[2]


def _refuse_other_precision(site: Site) -> None:
    stash = site.integer("stash_type", _FLOAT)
    if stash != _FLOAT:
        raise site.refusal(f"attribute stash_type={stash} has no gradient rule", "export the model in float32")
