"""The walk back through a graph."""

from collections.abc import Collection, Mapping, Sequence

import onnx

from edge_agent.errors import DataError
from server_bridge.bundles.gradients.forward import Forward
from server_bridge.bundles.gradients.graph import GraphBuilder, read_by
from server_bridge.bundles.gradients.rules import ANY_OUTPUT, ANY_TYPE, FLAT, REFUSED, RULES
from server_bridge.bundles.gradients.site import Obstacle, Rule, Site, refusal

_SHOWN_MAX = 8
"""Tensors that an error lists."""


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
    that is used more than once gets the sum. What lies below all trainable tensors is never looked at, so
    it may hold anything: recurrent, quantised, loops.

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
            (node, operator and attribute named, and the tensors that can be trained in spite of it); or the
            loss does not depend on a trainable tensor.

    Cost: O(nodes).
    """
    try:
        parts = _walk(graph, forward, nodes, value, gradient, trainable)
    except Obstacle as obstacle:
        above = _above(obstacle, forward, nodes, value, gradient, trainable)
        raise Obstacle(obstacle.node, obstacle.reason, _way_out(obstacle.hint, above)) from obstacle
    for name in trainable:
        if name not in parts:
            raise DataError(f"trainable tensor {name!r} has no influence on output {value!r}", "leave it out")
    return {name: _total(graph, parts, name) for name in trainable}


def depending(forward: Forward, nodes: Sequence[onnx.NodeProto], trainable: Collection[str]) -> set[str]:
    """The values that trainable tensors influence smoothly, and those tensors themselves."""
    depends = set(trainable)
    for node in nodes:
        if node.op_type not in FLAT and depends.intersection(read_by(node)):
            depends.update(name for name in node.output if name and forward.is_float(name))
    return depends


def _walk(
    graph: GraphBuilder,
    forward: Forward,
    nodes: Sequence[onnx.NodeProto],
    value: str,
    gradient: str,
    trainable: Collection[str],
) -> dict[str, list[str]]:
    """The parts of every gradient that was reached, by the value's name."""
    depends = depending(forward, nodes, trainable)
    parts: dict[str, list[str]] = {value: [gradient]}
    for node in reversed(nodes):
        reached = [position for position, name in enumerate(node.output) if name in parts]
        if node.op_type in FLAT or not reached or not depends.intersection(read_by(node)):
            continue
        _refuse_captured(node, depends)
        wanted = frozenset(position for position, name in enumerate(node.input) if name in depends)
        upstreams = {position: _total(graph, parts, node.output[position]) for position in reached}
        for position, part in _gradients(Site(node, graph, forward, upstreams, wanted)).items():
            parts.setdefault(node.input[position], []).append(part)
    return parts


def _gradients(site: Site) -> Mapping[int, str]:
    """What the node's rule gives, for the wanted inputs only."""
    node = site.node
    rule = _rule(node)
    if node.op_type not in ANY_OUTPUT and set(site.upstreams) != {0}:
        raise refusal(node, f"a gradient through its output {node.output[max(site.upstreams)]!r} has no rule")
    kind = site.forward.element_types.get(node.output[0], onnx.TensorProto.FLOAT)
    if node.op_type not in ANY_TYPE and kind != onnx.TensorProto.FLOAT:
        name = onnx.TensorProto.DataType.Name(kind).lower()
        raise refusal(node, f"it computes in {name}; gradients are computed in float32", "export the model in float32")
    gradients = rule(site)
    missing = sorted(site.wanted - gradients.keys())
    if missing:
        raise refusal(node, f"its input {node.input[missing[0]]!r} cannot be trained", "leave it out")
    return {position: gradients[position] for position in sorted(site.wanted)}


def _rule(node: onnx.NodeProto) -> Rule:
    standard = node.domain in ("", "ai.onnx")
    rule = RULES.get(node.op_type) if standard else None
    if rule is None:
        why = REFUSED.get(node.op_type) if standard else None
        raise refusal(node, f"the operator has no gradient rule{f': {why}' if why else ''}")
    return rule


def _refuse_captured(node: onnx.NodeProto, depends: Collection[str]) -> None:
    """A branch or loop that reads a trainable value from outside."""
    captured = sorted((read_by(node) - set(node.input)).intersection(depends))
    if captured:
        raise refusal(node, f"the operator has no gradient rule, and reads {captured[0]!r} inside it")


def _total(graph: GraphBuilder, parts: dict[str, list[str]], name: str) -> str:
    summands = parts[name]
    if len(summands) > 1:
        parts[name] = [graph.emit("Sum", *summands)]
    return parts[name][0]


def _above(
    obstacle: Obstacle,
    forward: Forward,
    nodes: Sequence[onnx.NodeProto],
    value: str,
    gradient: str,
    trainable: Collection[str],
) -> list[str]:
    """The tensors that can be trained all the same: tried, since there may be more obstacles."""
    names = list(trainable)
    while True:
        feeding = _feeding(forward, nodes, obstacle.node)
        above = [name for name in names if name not in feeding]
        if not above or len(above) == len(names):
            return []
        names = above
        copies = [_copy(node) for node in nodes]
        try:
            parts = _walk(GraphBuilder(()), forward, copies, value, gradient, names)
        except Obstacle as another:
            obstacle = another
        else:
            return [name for name in names if name in parts]


def _feeding(forward: Forward, nodes: Sequence[onnx.NodeProto], obstacle: onnx.NodeProto) -> set[str]:
    """The values that a node depends on smoothly."""
    feeding = read_by(obstacle)
    for node in reversed(nodes):
        if node.op_type not in FLAT and any(name in feeding and forward.is_float(name) for name in node.output):
            feeding |= read_by(node)
    return feeding


def _way_out(hint: str, above: Sequence[str]) -> str:
    if not above:
        less = "no chosen tensor lies above it"
    else:
        shown = ", ".join(above[:_SHOWN_MAX])
        more = f" and {len(above) - _SHOWN_MAX} more" if len(above) > _SHOWN_MAX else ""
        less = f"train only tensors above it: {shown}{more}"
    return f"{hint}; or {less}" if hint and above else hint or less


def _copy(node: onnx.NodeProto) -> onnx.NodeProto:
    copied = onnx.NodeProto()
    copied.CopyFrom(node)
    return copied
