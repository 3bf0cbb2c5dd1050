"""Batch normalisation that trains: statistics of the batch, and running ones renewed beside them."""

from collections.abc import Sequence
from typing import Literal

import onnx
from onnx import TensorProto, helper

from edge_agent.errors import DataError
from server_bridge.bundles.gradients.forward import Forward
from server_bridge.bundles.gradients.graph import GraphBuilder, needed_nodes
from server_bridge.bundles.gradients.site import refusal

Statistics = Literal["frozen", "batch"]
"""What a training graph normalises by: the file's running statistics, or each batch's own."""

MOMENTUM_DEFAULT = 0.9
"""The share of the old running statistic that is kept, where a node names none (ONNX; torch's momentum is 1 - this)."""
_VARIANCE_MAX = 1e38


def use_batch_statistics(
    graph: GraphBuilder, forward: Forward, nodes: Sequence[onnx.NodeProto], value: str
) -> dict[str, str]:
    """Let every BatchNormalization below a value normalise by the batch, and write the renewal of its running values.

    The running variance takes the unbiased variance of the batch (divided by n - 1, n values a channel), as
    torch's does; ONNX's own training mode takes the biased one (divided by n). Normalisation and gradient use the
    biased one in both. Where a channel has a single value (torch raises), the layer's output is its bias, nothing
    below it learns from that batch, and the running statistics stay as they were; so do those of a channel whose
    variance leaves float32.

    Args:
        graph: where to write; it holds ``nodes`` already.
        forward: shapes.
        nodes: the forward nodes; those of batch normalisation are changed in place.
        value: the output that the loss reads.

    Returns: {running mean or variance: the name of its renewed value}, in the order of the nodes. A statistic that
        several nodes share is renewed by each in turn.

    Raises:
        DataError: a statistic is no float32 initialiser, or a node is in training mode already (node named).
    """
    renewed: dict[str, str] = {}
    for node in needed_nodes(nodes, [value]):
        if is_batch_normalisation(node):
            _refuse_unfit(forward, node)
            _renew(graph, forward, node, renewed)
    return renewed


def _renew(graph: GraphBuilder, forward: Forward, node: onnx.NodeProto, renewed: dict[str, str]) -> None:
    """momentum running + (1 - momentum) batch; with momentum 0 the operator itself gives the batch's."""
    momentum = next((a.f for a in node.attribute if a.name == "momentum"), MOMENTUM_DEFAULT)
    running = list(node.input[3:5])
    more, unbiased = _trained_by_batch(graph, node, forward.shapes[node.input[1]][0] or 1)
    batch = (node.output[1], graph.emit("Mul", node.output[2], unbiased))
    fits = graph.emit("And", more, graph.emit("Less", batch[1], graph.scalar(_VARIANCE_MAX)))
    for statistic, fresh in zip(running, batch, strict=True):
        old = renewed.get(statistic, statistic)
        kept = graph.emit("Mul", old, graph.scalar(momentum))
        moved = graph.emit("Add", kept, graph.emit("Mul", fresh, graph.scalar(1 - momentum)))
        renewed[statistic] = graph.emit("Where", fits, moved, old)


def _trained_by_batch(graph: GraphBuilder, node: onnx.NodeProto, channels: int) -> tuple[str, str]:
    """Set a node to training mode; whether a channel has more than one value, and n / (n - 1), 1 where it has one.

    onnxruntime writes the batch's statistics into the memory of the running ones that the node reads, be they graph
    inputs or initialisers. So it gets a product of them, which nothing else reads and no optimisation can fold.
    """
    place, written = graph.nodes.index(node), len(graph.nodes)
    size = graph.emit("Cast", graph.emit("Size", node.input[0]), to=TensorProto.FLOAT)
    count = graph.emit("Div", size, graph.scalar(channels))
    one = graph.scalar(1.0)
    unbiased = graph.emit("Div", count, graph.emit("Max", graph.emit("Sub", count, one), one))
    spare = [graph.emit("Mul", statistic, unbiased) for statistic in node.input[3:5]]
    before = graph.nodes[written:]
    del graph.nodes[written:]
    graph.nodes[place:place] = before
    node.input[3], node.input[4] = spare
    kept = [attribute for attribute in node.attribute if attribute.name not in ("momentum", "training_mode")]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute("momentum", 0.0), helper.make_attribute("training_mode", 1)])
    del node.output[1:]
    node.output.extend(graph.fresh(hint) for hint in ("batch_mean", "batch_variance"))
    return graph.emit("Greater", count, one), unbiased


def _refuse_unfit(forward: Forward, node: onnx.NodeProto) -> None:
    if any(attribute.name == "training_mode" and attribute.i for attribute in node.attribute):
        raise refusal(node, "attribute training_mode=1 in the served model", "export the model in evaluation mode")
    floats = {t.name for t in forward.model.graph.initializer if t.data_type == TensorProto.FLOAT}
    for statistic in node.input[3:5]:
        if statistic not in floats:
            raise refusal(
                node,
                f"running statistic {statistic!r} is no float32 initialiser and cannot be renewed",
                "train with frozen statistics",
            )


def statistics_names(model: onnx.ModelProto) -> set[str]:
    """The running means and variances of a model that is to train by the batch's.

    Raises:
        DataError: it has no BatchNormalization node; exporters fold them into convolutions.
    """
    found = {name for node in model.graph.node if is_batch_normalisation(node) for name in node.input[3:5]}
    if not found:
        raise DataError(
            "the model has no BatchNormalization node, whose statistics could be the batch's",
            "export it without folding (torch: optimize=False; with dynamo=False training=TrainingMode.PRESERVE and "
            "do_constant_folding=False)",
        )
    return found


def is_batch_normalisation(node: onnx.NodeProto) -> bool:
    """Whether a node is the standard operator."""
    return node.op_type == "BatchNormalization" and node.domain in ("", "ai.onnx")
