"""Gradients of batch normalisation, by running statistics or by the batch's, and of softmax."""

from collections.abc import Mapping

from onnx import TensorProto

from server_bridge.bundles.gradients.site import Site
from server_bridge.bundles.gradients.sums import by_channel


def batch_normalisation(site: Site) -> Mapping[int, str]:
    """``scale (x - mean) / sqrt(var + epsilon) + bias``: mean and variance of the file, or the batch's own."""
    if site.wanted & {3, 4}:
        statistic = site.node.input[min(site.wanted & {3, 4})]
        raise site.refusal(f"{statistic!r} is a statistic, not trained by gradients", f"add --trainable '!{statistic}'")
    if site.integer("training_mode", 0):
        return _by_batch(site)
    graph = site.graph
    image, scale, _, mean, variance = site.node.input[:5]
    sizes = site.shape(0)[2:]
    deviation = _deviation(site, variance)
    gradients = {}
    if 0 in site.wanted:
        gradients[0] = graph.emit("Mul", site.upstream, _along_channels(site, graph.emit("Div", scale, deviation)))
    if 1 in site.wanted:
        centred = graph.emit("Sub", image, _along_channels(site, mean))
        total = by_channel(graph, graph.emit("Mul", site.upstream, centred), sizes)
        gradients[1] = graph.emit("Div", total, deviation)
    if 2 in site.wanted:
        gradients[2] = by_channel(graph, site.upstream, sizes)
    return gradients


def _by_batch(site: Site) -> Mapping[int, str]:
    """Through the batch's mean and variance, which the node gives with momentum 0 (see `batch_statistics`).

    inverse scale (dy - mean(dy) - centred inverse^2 mean(dy centred)), means over the n values of a channel.

    Source: Ioffe and Szegedy 2015, section 3.
    """
    if site.number("momentum", 0.9) != 0 or len(site.node.output) < 3:
        raise site.refusal("attribute training_mode=1 has no gradient rule", "export the model in evaluation mode")
    graph = site.graph
    image = site.node.input[0]
    sizes = site.shape(0)[2:]
    deviation = _deviation(site, site.node.output[2])
    total = by_channel(graph, site.upstream, sizes)
    centred = graph.emit("Sub", image, _along_channels(site, site.node.output[1]))
    product = graph.emit("Div", by_channel(graph, graph.emit("Mul", site.upstream, centred), sizes), deviation)
    gradients = {1: product, 2: total}
    if 0 in site.wanted:
        gradients[0] = _through_batch(site, centred, deviation, total, product)
    return gradients


def _through_batch(site: Site, centred: str, deviation: str, total: str, product: str) -> str:
    graph = site.graph
    count = graph.emit("Div", graph.emit("Size", site.node.input[0]), graph.emit("Size", total))
    count = graph.emit("Cast", count, to=TensorProto.FLOAT)
    level = graph.emit("Div", total, count)
    slope = graph.emit("Div", product, graph.emit("Mul", deviation, count))
    along = graph.emit("Mul", centred, _along_channels(site, slope))
    rest = graph.emit("Sub", graph.emit("Sub", site.upstream, _along_channels(site, level)), along)
    return graph.emit("Mul", rest, _along_channels(site, graph.emit("Div", site.node.input[1], deviation)))


def _deviation(site: Site, variance: str) -> str:
    graph = site.graph
    return graph.emit("Sqrt", graph.emit("Add", variance, graph.scalar(site.number("epsilon", 1e-5))))


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


def _along_channels(site: Site, value: str) -> str:
    return site.graph.reshape(value, (1, -1, *[1] * (len(site.shape(0)) - 2)))
