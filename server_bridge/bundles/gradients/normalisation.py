"""Gradients of batch normalisation in its frozen form, and of softmax."""

from collections.abc import Mapping

from server_bridge.bundles.gradients.site import Site


def batch_normalisation(site: Site) -> Mapping[int, str]:
    """``scale (x - mean) / sqrt(var + epsilon) + bias`` with the mean and variance of the file."""
    if site.integer("training_mode", 0):
        raise site.refusal("attribute training_mode=1 has no gradient rule", "export the model in evaluation mode")
    if site.wanted & {3, 4}:
        statistic = site.node.input[min(site.wanted & {3, 4})]
        raise site.refusal(f"{statistic!r} is a statistic, not trained by gradients", f"add --trainable '!{statistic}'")
    graph = site.graph
    image, scale, _, mean, variance = site.node.input[:5]
    rank = len(site.shape(0))
    deviation = graph.emit("Sqrt", graph.emit("Add", variance, graph.scalar(site.number("epsilon", 1e-5))))
    gradients = {}
    if 0 in site.wanted:
        factor = _along_channels(site, graph.emit("Div", scale, deviation), rank)
        gradients[0] = graph.emit("Mul", site.upstream, factor)
    axes = [0, *range(2, rank)]
    if 1 in site.wanted:
        centred = graph.emit("Sub", image, _along_channels(site, mean, rank))
        total = graph.sum_over(graph.emit("Mul", site.upstream, centred), axes, keepdims=0)
        gradients[1] = graph.emit("Div", total, deviation)
    if 2 in site.wanted:
        gradients[2] = graph.sum_over(site.upstream, axes, keepdims=0)
    return gradients


def softmax(site: Site) -> Mapping[int, str]:
    """y (dy - sum(dy y))."""
    graph, y = site.graph, site.node.output[0]
    weighted = graph.emit("Mul", site.upstream, y)
    total = graph.sum_over(weighted, [site.integer("axis", -1)], keepdims=1)
    return {0: graph.emit("Sub", weighted, graph.emit("Mul", y, total))}


def log_softmax(site: Site) -> Mapping[int, str]:
    """dy - exp(y) sum(dy)."""
    graph = site.graph
    total = graph.sum_over(site.upstream, [site.integer("axis", -1)], keepdims=1)
    return {0: graph.emit("Sub", site.upstream, graph.emit("Mul", graph.emit("Exp", site.node.output[0]), total))}


def _along_channels(site: Site, value: str, rank: int) -> str:
    return site.graph.reshape(value, (1, -1, *[1] * (rank - 2)))
