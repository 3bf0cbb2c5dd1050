"""A training step as one ONNX graph: forward, loss, gradients, optimiser."""

from collections.abc import Sequence
from dataclasses import dataclass

import onnx
from onnx import TensorProto, helper

from edge_agent.errors import DataError
from edge_agent.wire.manifest import LabelFreeLossName, LossName, OptimiserName, TrainingGraphSpec
from server_bridge.bundles.gradients.batch_statistics import Statistics, use_batch_statistics
from server_bridge.bundles.gradients.forward import Forward
from server_bridge.bundles.gradients.graph import GraphBuilder, needed_nodes
from server_bridge.bundles.gradients.losses import LOSS, Objective, cross_entropy, mean_squared_error
from server_bridge.bundles.gradients.optimisers import DEFAULTS, OPTIMISERS
from server_bridge.bundles.gradients.reverse import differentiate

LABEL = "label"
BATCH = "batch"


@dataclass(frozen=True)
class TrainingGraph:
    """A training step and its manifest entry."""

    model: onnx.ModelProto
    spec: TrainingGraphSpec


@dataclass(frozen=True)
class Plan:
    """What a training graph is to do.

    Args:
        name: the graph's; its file is ``train/<name>.onnx``.
        trainable: names of float32 initialisers.
        objective: what is minimised.
        optimiser: by name; its parts are documented in `OPTIMISERS`.
        statistics: of batch normalisation; ``batch`` renews the running ones (see `use_batch_statistics`).
    """

    name: str
    trainable: Sequence[str]
    objective: Objective
    optimiser: OptimiserName
    statistics: Statistics = "frozen"


def training_graph(forward: Forward, output: str, plan: Plan) -> TrainingGraph:
    """Write a training step.

    Args:
        forward: the model, of opset 17 or later, whose initialisers are no graph inputs.
        output: the logits (n, classes), or the value (n,) or (n, 1); for cross-entropy an output that is a
            LogSoftmax is trained at its input.
        plan: see `Plan`.

    Returns: the graph, whose interface `TrainingGraphSpec` documents.

    Raises:
        DataError: an operator above a trainable tensor has no gradient rule, or a name is reserved (named).
    """
    loss = plan.objective.loss
    graph = GraphBuilder(_names(forward.model.graph))
    nodes = [_copy(node) for node in forward.model.graph.node]
    graph.nodes.extend(nodes)
    value = trained_value(forward, output, loss)
    renewed = use_batch_statistics(graph, forward, nodes, value) if plan.statistics == "batch" else {}
    spec = _spec(plan, list(renewed))
    _refuse_reserved(forward, spec)
    gradient = _write_loss(graph, forward, value, loss)
    gradients = differentiate(graph, forward, nodes, value, gradient, plan.trainable)
    OPTIMISERS[plan.optimiser].write(graph, gradients)
    for statistic, fresh in renewed.items():
        graph.emit_as(f"out.{statistic}", "Identity", fresh)
    return TrainingGraph(_assemble(forward, graph, spec), spec)


def _spec(plan: Plan, statistics: list[str]) -> TrainingGraphSpec:
    optimiser = OPTIMISERS[plan.optimiser]
    return TrainingGraphSpec(
        name=plan.name,
        file=f"train/{plan.name}.onnx",
        loss=plan.objective.loss,
        optimiser=plan.optimiser,
        trainable=list(plan.trainable),
        state=list(optimiser.state),
        scalars=list(optimiser.scalars),
        defaults={name: DEFAULTS[name] for name in optimiser.scalars if name in DEFAULTS},
        label_input=LABEL,
        statistics=statistics,
    )


def carried(spec: TrainingGraphSpec) -> list[tuple[str, str]]:
    """(graph input, trainable tensor it is shaped as): the parameters and statistics, then the states."""
    pairs = [(name, name) for name in (*spec.trainable, *spec.statistics)]
    return pairs + [(f"{state}.{name}", name) for state in spec.state for name in spec.trainable]


def trained_value(forward: Forward, output: str, loss: LossName | LabelFreeLossName) -> str:
    """Where the loss attaches: the output, or the logits under its LogSoftmax."""
    producer = forward.producer(output)
    if loss == "cross-entropy" and producer is not None and producer.op_type == "LogSoftmax":
        return str(producer.input[0])
    return output


def _write_loss(graph: GraphBuilder, forward: Forward, value: str, loss: LossName | LabelFreeLossName) -> str:
    shape = forward.shapes[value]
    if loss == "mse":
        return mean_squared_error(graph, value, LABEL, len(shape))
    classes = shape[-1]
    if len(shape) != 2 or classes is None or classes < 2:
        raise DataError(f"output {value!r} has shape {shape}; cross-entropy needs (batch, classes)")
    return cross_entropy(graph, value, LABEL, classes)


def _assemble(forward: Forward, graph: GraphBuilder, spec: TrainingGraphSpec) -> onnx.ModelProto:
    source = forward.model.graph
    outputs = [(LOSS, ()), *((f"out.{name}", _sizes(forward, shaped)) for name, shaped in carried(spec))]
    nodes = needed_nodes(graph.nodes, [name for name, _ in outputs])
    read = {name for node in nodes for name in node.input}
    fed = {name for name, _ in carried(spec)}
    frozen = [t for t in source.initializer if t.name in read and t.name not in fed]
    frozen += [t for t in graph.constants if t.name in read]
    proto = helper.make_graph(
        nodes,
        f"{source.name or 'model'}.{spec.name}",
        [*source.input, _label(forward, spec), *_carried_inputs(forward, spec), *_scalars(spec)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes) for name, sizes in outputs],
        frozen,
    )
    model = helper.make_model(proto, opset_imports=forward.model.opset_import, ir_version=forward.model.ir_version)
    onnx.checker.check_model(model)
    return model


def _label(forward: Forward, spec: TrainingGraphSpec) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(
        LABEL, TensorProto.INT64 if spec.loss == "cross-entropy" else TensorProto.FLOAT, [BATCH]
    )


def _carried_inputs(forward: Forward, spec: TrainingGraphSpec) -> list[onnx.ValueInfoProto]:
    return [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, _sizes(forward, shaped))
        for name, shaped in carried(spec)
    ]


def _scalars(spec: TrainingGraphSpec) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(name, TensorProto.FLOAT, []) for name in spec.scalars]


def _sizes(forward: Forward, name: str) -> list[int | None]:
    return list(forward.shapes[name])


def _copy(node: onnx.NodeProto) -> onnx.NodeProto:
    copied = onnx.NodeProto()
    copied.CopyFrom(node)
    return copied


def _names(graph: onnx.GraphProto) -> set[str]:
    values = {value.name for value in (*graph.input, *graph.output, *graph.initializer)}
    return values.union(*(node.output for node in graph.node))


def _refuse_reserved(forward: Forward, spec: TrainingGraphSpec) -> None:
    reserved = {LOSS, LABEL, *spec.scalars, *(f"out.{name}" for name, _ in carried(spec))}
    reserved |= {name for name, shaped in carried(spec) if name != shaped}
    clash = sorted(reserved & _names(forward.model.graph))
    if clash:
        raise DataError(f"the model has a value named {clash[0]!r}, which a training graph needs", "rename it")
