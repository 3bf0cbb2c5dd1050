"""A task's graph: the backbone with the task's proxies mixed in, and the task's head."""

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edge_agent.errors import DataError
from edge_agent.wire.tensors import Weights
from server_bridge.bundles.gradients.graph import GraphBuilder, needed_nodes, read_by
from server_bridge.bundles.tailor.blocks import Block, Mix, Proxy

METADATA = "tailor"
_MADE = "tailor/"
"""Begins the names of the nodes that this module writes."""


def tailored(backbone: onnx.ModelProto, block: Block, parameters: Weights) -> onnx.ModelProto:
    """The inference graph of a task.

    Args:
        backbone: a checked model; its first output becomes the task's logits. Or a graph that this function made,
            whose block is then replaced.
        block: what the task adds.
        parameters: the block's trainable tensors; they become initialisers.

    Raises:
        DataError: a name that the block needs is taken in the model.
    """
    nodes = _backbone_nodes(backbone, block)
    graph = GraphBuilder(_names(backbone))
    mixes = {mix.value: mix for mix in block.mixes}
    for node in nodes:
        made = [name for name in node.output if name in mixes]
        graph.nodes.append(_renamed(node, {name: mixes[name].raw for name in made}))
        begun = len(graph.nodes)
        for name in made:
            _write_mix(graph, mixes[name])
        _sign(graph.nodes[begun:])
    begun = len(graph.nodes)
    _write_head(graph, block, backbone.graph.output[0].name)
    _sign(graph.nodes[begun:])
    return _assemble(backbone, graph, block, parameters)


def block_of(model: onnx.ModelProto) -> Block | None:
    """The block that a graph was tailored with; None for any other graph."""
    for entry in model.metadata_props:
        if entry.key == METADATA:
            try:
                return Block.from_json(entry.value)
            except (ValueError, TypeError, KeyError) as error:
                raise DataError(f"the graph's note on its task block cannot be read: {error}") from error
    return None


def with_outputs(model: onnx.ModelProto, values: Sequence[str]) -> onnx.ModelProto:
    """A graph that also gives some of its float32 values."""
    wider = onnx.ModelProto()
    wider.CopyFrom(model)
    wider.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in values)
    return wider


def _backbone_nodes(model: onnx.ModelProto, block: Block) -> list[onnx.NodeProto]:
    """The nodes of the backbone below its head, under the names that they had."""
    former = block_of(model)
    names = {mix.raw: mix.value for mix in former.mixes} if former is not None else {}
    kept = [node for node in model.graph.node if not node.name.startswith(_MADE)]
    whole = [_renamed(node, names) for node in kept]
    return needed_nodes(whole, [block.features])


def _write_mix(graph: GraphBuilder, mix: Mix) -> None:
    """x_l = alpha_l G_l(x_{l-1}) + the sum of alpha P(x_l'): a coefficient scales the proxy's small matrix."""
    shares = graph.emit("Softmax", mix.coefficients, axis=-1)
    count = len(mix.branches) + mix.nothing
    scales = [_pick(graph, shares, place, count) for place in range(len(mix.branches))]
    if mix.backbone:
        graph.emit_as(mix.terms[0], "Mul", mix.raw, scales[0])
    own = slice(int(mix.backbone), None)
    for proxy, term, scale in zip(mix.proxies, mix.terms[own], scales[own], strict=True):
        _write_proxy(graph, proxy, term, scale)
    total = mix.terms[0]
    for term in mix.terms[1:-1]:
        total = graph.emit("Add", total, term)
    if len(mix.terms) > 1:
        graph.emit_as(mix.value, "Add", total, mix.terms[-1])
    else:
        graph.emit_as(mix.value, "Identity", total)


def _pick(graph: GraphBuilder, shares: str, place: int, count: int) -> str:
    """One of (1, count) values, as (1, 1)."""
    if count == 1:
        return shares
    chosen = np.zeros((count, 1), dtype=np.float32)
    chosen[place] = 1
    return graph.emit("MatMul", shares, graph.constant(chosen))


def _write_proxy(graph: GraphBuilder, proxy: Proxy, term: str, scale: str) -> None:
    weight = graph.emit("Mul", proxy.weight, scale)
    value = proxy.value
    if proxy.kernel:
        value = graph.emit("MaxPool", value, kernel_shape=proxy.kernel, strides=proxy.strides)
    if proxy.kind == "convolution":
        graph.emit_as(term, "Conv", value, weight)
        return
    if proxy.kind == "collapse":
        value = graph.emit("Flatten", value, axis=1)
    graph.emit_as(term, "MatMul", value, weight)


def _write_head(graph: GraphBuilder, block: Block, output: str) -> None:
    value = block.features
    if block.pooled:
        value = graph.emit("Flatten", graph.emit("GlobalAveragePool", value), axis=1)
    graph.emit_as(output, "Gemm", value, *block.head)


def _assemble(backbone: onnx.ModelProto, graph: GraphBuilder, block: Block, parameters: Weights) -> onnx.ModelProto:
    first, *others = backbone.graph.output
    logits = helper.make_tensor_value_info(first.name, TensorProto.FLOAT, [_batch(first), block.classes])
    made = {name for node in graph.nodes for name in node.output}
    outputs = [logits, *(value for value in others if value.name in made)]
    nodes = needed_nodes(graph.nodes, [value.name for value in outputs])
    read = {name for node in nodes for name in read_by(node)} | {value.name for value in outputs}
    frozen = [tensor for tensor in backbone.graph.initializer if tensor.name in read and tensor.name not in parameters]
    frozen += [tensor for tensor in graph.constants if tensor.name in read]
    trained = [numpy_helper.from_array(value, name) for name, value in parameters.items()]
    proto = helper.make_graph(nodes, backbone.graph.name or "model", backbone.graph.input, outputs, [*trained, *frozen])
    model = helper.make_model(proto, opset_imports=backbone.opset_import, ir_version=backbone.ir_version)
    model.metadata_props.add(key=METADATA, value=block.to_json())
    onnx.checker.check_model(model)
    return model


def refuse_taken_names(model: onnx.ModelProto, blocks: Sequence[Block]) -> None:
    """Before anything is written.

    Raises:
        DataError: a tensor of a block, or a value that it adds, is named as something in the model.
    """
    taken = _names(model)
    for block in blocks:
        wanted = {*block.head, *(mix.raw for mix in block.mixes), *(mix.coefficients for mix in block.mixes)}
        wanted |= {proxy.weight for mix in block.mixes for proxy in mix.proxies}
        wanted |= {term for mix in block.mixes for term in mix.terms}
        if clash := sorted(wanted & taken):
            raise DataError(f"the model has a value named {clash[0]!r}, which task {block.task!r} needs", "rename it")


def _sign(nodes: Sequence[onnx.NodeProto]) -> None:
    """Mark nodes as written here."""
    for node in nodes:
        node.name = _MADE + node.name


def _renamed(node: onnx.NodeProto, names: dict[str, str]) -> onnx.NodeProto:
    """A copy whose outputs have other names."""
    copied = onnx.NodeProto()
    copied.CopyFrom(node)
    for place, name in enumerate(node.output):
        copied.output[place] = names.get(name, name)
    return copied


def _names(model: onnx.ModelProto) -> set[str]:
    graph = model.graph
    values = {value.name for value in (*graph.input, *graph.output, *graph.initializer)}
    return values.union(*(node.output for node in graph.node))


def _batch(value: onnx.ValueInfoProto) -> str:
    return value.type.tensor_type.shape.dim[0].dim_param or "batch"
