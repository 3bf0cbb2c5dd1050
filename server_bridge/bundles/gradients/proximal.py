"""The proximal term of FedProx: what trains is drawn to the weights that the round began with."""

from collections.abc import Mapping

from server_bridge.bundles.gradients.graph import GraphBuilder
from server_bridge.bundles.gradients.losses import LOSS

BASE, PROXIMAL = "base", "proximal"


def pull_to_base(graph: GraphBuilder, gradients: Mapping[str, str]) -> dict[str, str]:
    """Add (proximal / 2) |t - base.t|^2, summed over the trainable tensors, to ``loss``.

    Graph inputs: ``base.<t>``, and the scalar ``proximal``.

    Args:
        graph: where to write; it has the loss already.
        gradients: of the loss, by tensor.

    Returns: the gradients of the sum: g + proximal (t - base.t).

    Source: Li et al. 2020, equation 2.
    """
    ways = {name: graph.emit("Sub", name, f"{BASE}.{name}") for name in gradients}
    squares = [graph.emit("ReduceSumSquare", way, keepdims=0) for way in ways.values()]
    term = graph.emit("Mul", graph.emit("Sum", *squares), graph.emit("Mul", PROXIMAL, graph.scalar(0.5)))
    graph.emit_as(LOSS, "Add", graph.rename(LOSS), term)
    return {
        name: graph.emit("Add", gradient, graph.emit("Mul", ways[name], PROXIMAL))
        for name, gradient in gradients.items()
    }
