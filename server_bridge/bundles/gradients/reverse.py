"""The walk back through a graph."""

from collections.abc import Collection, Sequence

import onnx

from edge_agent.errors import DataError
from server_bridge.bundles.gradients.forward import Forward
from server_bridge.bundles.gradients.graph import GraphBuilder
from server_bridge.bundles.gradients.rules import RULES
from server_bridge.bundles.gradients.site import Rule, Site, refusal


def differentiate(
    graph: GraphBuilder,
    forward: Forward,
    nodes: Sequence[onnx.NodeProto],
    value: str,
    gradient: str,
    trainable: Collection[str],
) -> dict[str, str]:
    """Write the gradients of the trainable tensors.

    Nodes are visited once, from last to first, and only where a trainable tensor lies below; a tensor
    that is used more than once gets the sum.

    Args:
        graph: where to write; it holds ``nodes`` already.
        forward: shapes.
        nodes: the forward nodes in topological order.
        value: the output that the loss reads.
        gradient: the loss's gradient with respect to it.
        trainable: names of initialisers.

    Returns: the name of each trainable tensor's gradient.

    Raises:
        DataError: an operator between a trainable tensor and the loss has no rule, or its rule refuses it
            (node, operator and attribute named); or the loss does not depend on a trainable tensor.

    Cost: O(nodes).
    """
    depends = _depending(forward, nodes, trainable)
    parts: dict[str, list[str]] = {value: [gradient]}
    for node in reversed(nodes):
        wanted = frozenset(position for position, name in enumerate(node.input) if name in depends)
        reached = [name for name in node.output if name in parts]
        if not wanted or not reached:
            continue
        if reached != [node.output[0]]:
            raise refusal(node, f"a gradient through its output {reached[-1]!r} has no rule")
        site = Site(node, graph, forward, _total(graph, parts, node.output[0]), wanted)
        for position, part in _rule(node)(site).items():
            if position in wanted:
                parts.setdefault(node.input[position], []).append(part)
    for name in trainable:
        if name not in parts:
            raise DataError(f"trainable tensor {name!r} has no influence on output {value!r}", "leave it out")
    return {name: _total(graph, parts, name) for name in trainable}


def _depending(forward: Forward, nodes: Sequence[onnx.NodeProto], trainable: Collection[str]) -> set[str]:
    """The values that a trainable tensor influences smoothly."""
    depends = set(trainable)
    for node in nodes:
        if depends.intersection(node.input):
            depends.update(name for name in node.output if name and forward.is_float(name))
    return depends


def _total(graph: GraphBuilder, parts: dict[str, list[str]], name: str) -> str:
    summands = parts[name]
    if len(summands) > 1:
        parts[name] = [graph.emit("Sum", *summands)]
    return parts[name][0]


def _rule(node: onnx.NodeProto) -> Rule:
    rule = RULES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    if rule is None:
        raise refusal(node, "the operator has no gradient rule", "train only tensors above it")
    return rule
