"""A training step as one ONNX graph: forward, loss, gradients, optimiser."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

import onnx
from onnx import TensorProto, helper

from edge_agent.errors import DataError
from edge_agent.wire.manifest import OptimiserName, TrainingGraphSpec
from server_bridge.bundles.gradients.batch_statistics import Statistics, use_batch_statistics
from server_bridge.bundles.gradients.forward import Forward
from server_bridge.bundles.gradients.graph import GraphBuilder, needed_nodes, read_by
from server_bridge.bundles.gradients.guards import CLIP_NORM, REPORTS, UPDATE_NORM_CAP, Step, write_guarded
from server_bridge.bundles.gradients.losses import LABEL, LOSS
from server_bridge.bundles.gradients.objective import Objective, trained_value, write_objective
from server_bridge.bundles.gradients.optimisers import LEARNING_RATE, OPTIMISERS, STEP, WEIGHT_DECAY
from server_bridge.bundles.gradients.packing import NOTHING_PACKED, PACKED, Pack, small_tensors
from server_bridge.bundles.gradients.proximal import BASE, PROXIMAL, pull_to_base
from server_bridge.bundles.gradients.reverse import differentiate
from server_bridge.bundles.gradients.series import BOUNDS, Interface, deserves_series, write_series

BATCH = "batch"
OF_THE_STEP = (LEARNING_RATE, STEP)


@dataclass(frozen=True)
class TrainingGraph:
    """A training step and its manifest entry.

    Args:
        model: a step.
        spec: of both graphs.
        series: several steps in one graph, of a small net.
    """

    model: onnx.ModelProto
    spec: TrainingGraphSpec
    series: onnx.ModelProto | None = None

    @property
    def models(self) -> dict[str, onnx.ModelProto]:
        """By the file's name."""
        more = {} if self.series is None or self.spec.series is None else {self.spec.series: self.series}
        return {self.spec.file: self.model, **more}

    @property
    def alone(self) -> "TrainingGraph":
        """Without the graph of several steps."""
        return TrainingGraph(self.model, self.spec.model_copy(update={"series": None}))


@dataclass(frozen=True)
class Plan:
    """What a training graph is to do.

    Args:
        name: the graph's; its file is ``train/<name>.onnx``.
        trainable: names of float32 initialisers.
        objective: what is minimised.
        optimiser: by name; its parts are documented in `OPTIMISERS`.
        statistics: of batch normalisation; ``batch`` renews the running ones (see `use_batch_statistics`).
        anchored: whether the proximal term of FedProx is added (see `pull_to_base`).
        weight_decay: whether sgd, momentum and adam have the scalar ``weight_decay``, 0 unless set, which is added to
            the gradient; it costs two passes over the parameters. Adamw always has its own.
        embedding: the name of the embedding that the model takes as its input; None: it is the whole model.
        task: the one whose parameters it trains.
    """

    name: str
    trainable: Sequence[str]
    objective: Objective
    optimiser: OptimiserName
    statistics: Statistics = "frozen"
    anchored: bool = False
    weight_decay: bool = False
    embedding: str | None = None
    task: str | None = None

    @property
    def decayed(self) -> bool:
        """Whether weight decay is added to the gradient."""
        return self.weight_decay and WEIGHT_DECAY not in OPTIMISERS[self.optimiser].scalars

    @property
    def scaled(self) -> bool:
        """Whether the loss's gradient is multiplied with the learning rate, which saves a pass over the parameters."""
        return OPTIMISERS[self.optimiser].linear and not (self.anchored or self.decayed)


def training_graph(forward: Forward, output: str, plan: Plan) -> TrainingGraph:
    """Write a training step.

    Args:
        forward: the model, of opset 17 or later, whose initialisers are no graph inputs.
        output: the logits (n, classes), or the value or logit (n,) or (n, 1); an output that is a LogSoftmax is
            trained at its input.
        plan: see `Plan`.

    Returns: the graph, whose interface `TrainingGraphSpec` documents.

    Raises:
        DataError: an operator above a trainable tensor has no gradient rule, the output does not suit the loss, or a
            name is reserved (named).
    """
    written = _written(forward, output, plan)
    _refuse_reserved(forward, written.spec)
    write_guarded(written.graph, written.step, OPTIMISERS[plan.optimiser], carried(forward, written.spec))
    model = _assemble(forward, written.graph, plan, written.spec)
    if not deserves_series(forward, plan.trainable):
        return TrainingGraph(model, written.spec)
    spec = written.spec.model_copy(update={"series": f"train/{plan.name}.series.onnx"})
    return TrainingGraph(model, spec, _series(forward, output, plan))


@dataclass(frozen=True)
class _Written:
    """What a step starts from, written."""

    graph: GraphBuilder
    spec: TrainingGraphSpec
    step: Step


def _written(forward: Forward, output: str, plan: Plan) -> _Written:
    """Forward, loss and gradients; what is left to write is the step."""
    graph = GraphBuilder(_names(forward.model.graph))
    nodes = [_copy(node) for node in forward.model.graph.node]
    graph.nodes.extend(nodes)
    value = trained_value(forward, output, plan.objective)
    renewed = use_batch_statistics(graph, forward, nodes, value) if plan.statistics == "batch" else {}
    pack = small_tensors(plan.trainable, forward.shapes) if OPTIMISERS[plan.optimiser].packs else NOTHING_PACKED
    loss = write_objective(graph, forward, value, plan.objective)
    upstream = graph.emit("Mul", loss.name, LEARNING_RATE) if plan.scaled else loss.name
    gradients = differentiate(graph, forward, nodes, value, upstream, plan.trainable)
    if plan.anchored:
        gradients = pull_to_base(graph, gradients)
    step = Step(gradients, renewed, plan.decayed, loss.counted, pack, plan.scaled)
    return _Written(graph, _spec(plan, list(renewed), pack), step)


def carried(forward: Forward, spec: TrainingGraphSpec) -> dict[str, list[int | None]]:
    """Shapes of what a step changes, by graph input: the parameters and statistics, then the states."""
    shapes = {name: _sizes(forward, name) for name in (*spec.trainable, *spec.statistics)}
    packed = spec.packed or []
    flat = sum(prod(size or 0 for size in shapes[name]) for name in packed)
    for state in spec.state:
        shapes |= {f"{state}.{name}": shapes[name] for name in spec.trainable if name not in packed}
        shapes |= {f"{state}.{PACKED}": [flat]} if packed else {}
    return shapes


def _spec(plan: Plan, statistics: list[str], pack: Pack) -> TrainingGraphSpec:
    optimiser = OPTIMISERS[plan.optimiser]
    scalars: dict[str, float | None] = {**optimiser.scalars, CLIP_NORM: 0.0, UPDATE_NORM_CAP: 0.0}
    scalars |= plan.objective.scalars
    if plan.decayed:
        scalars[WEIGHT_DECAY] = 0.0
    if plan.anchored:
        scalars[PROXIMAL] = 0.0
    return TrainingGraphSpec(
        name=plan.name,
        file=f"train/{plan.name}.onnx",
        loss=plan.objective.loss,
        optimiser=plan.optimiser,
        trainable=list(plan.trainable),
        state=list(optimiser.state),
        packed=list(pack.shapes) or None,
        scalars=list(scalars),
        label_input=None if plan.objective.label_type is None else LABEL,
        ignore_index=plan.objective.weighing.ignored,
        statistics=statistics,
        anchored=plan.anchored,
        class_inputs=list(plan.objective.class_inputs),
        defaults={name: value for name, value in scalars.items() if value is not None},
        reports=list(REPORTS),
        embedding=plan.embedding,
        task=plan.task,
    )


def _series(forward: Forward, output: str, plan: Plan) -> onnx.ModelProto:
    """The graph of several steps."""
    written = _written(forward, output, plan)
    spec = written.spec
    bare = spec.model_copy(update={"scalars": [name for name in spec.scalars if name not in (*BOUNDS, *OF_THE_STEP)]})
    changing = carried(forward, spec)
    fed = Interface(
        [*forward.model.graph.input, *_label(plan)],
        _floats(changing.items()),
        _floats(entry for entry in _inputs(forward, plan, bare) if entry[0] not in changing),
    )
    series = write_series(written.graph, written.step, OPTIMISERS[plan.optimiser], fed)
    return _model(forward, f"{spec.name}.series", series.nodes, series.inputs, series.outputs, written.graph.constants)


def _assemble(forward: Forward, graph: GraphBuilder, plan: Plan, spec: TrainingGraphSpec) -> onnx.ModelProto:
    outputs: list[tuple[str, Sequence[int | None]]] = [(name, ()) for name in (LOSS, *spec.reports)]
    outputs += [(f"out.{name}", sizes) for name, sizes in carried(forward, spec).items()]
    inputs = [*forward.model.graph.input, *_label(plan), *_floats(_inputs(forward, plan, spec))]
    return _model(forward, spec.name, graph.nodes, inputs, _floats(outputs), graph.constants)


def _model(
    forward: Forward,
    name: str,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    constants: Sequence[onnx.TensorProto],
) -> onnx.ModelProto:
    """A model of what its outputs need, the tensors that it reads and is not fed among it."""
    source = forward.model.graph
    nodes = needed_nodes(nodes, [value.name for value in outputs])
    read = {value for node in nodes for value in read_by(node)}
    fed = {value.name for value in inputs}
    frozen = [tensor for tensor in (*source.initializer, *constants) if tensor.name in read and tensor.name not in fed]
    proto = helper.make_graph(nodes, f"{source.name or 'model'}.{name}", inputs, outputs, frozen)
    model = helper.make_model(proto, opset_imports=forward.model.opset_import, ir_version=forward.model.ir_version)
    onnx.checker.check_model(model)
    return model


def _label(plan: Plan) -> list[onnx.ValueInfoProto]:
    kind = plan.objective.label_type
    return [] if kind is None else [helper.make_tensor_value_info(LABEL, kind, [BATCH])]


def _inputs(forward: Forward, plan: Plan, spec: TrainingGraphSpec) -> Iterable[tuple[str, Sequence[int | str | None]]]:
    """What is fed beside the model's own inputs and the labels, all float32."""
    yield from carried(forward, spec).items()
    if spec.anchored:
        for name in spec.trainable:
            yield f"{BASE}.{name}", _sizes(forward, name)
    for name in spec.class_inputs:
        yield name, ["classes"]
    for name in spec.scalars:
        yield name, []


def _floats(values: Iterable[tuple[str, Sequence[int | str | None]]]) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes) for name, sizes in values]


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
    changed = carried(forward, spec)
    reserved = {LOSS, LABEL, *spec.scalars, *spec.class_inputs, *spec.reports, *(f"out.{name}" for name in changed)}
    reserved |= {name for name in changed if name not in (*spec.trainable, *spec.statistics)}
    reserved |= {f"{BASE}.{name}" for name in spec.trainable if spec.anchored}
    clash = sorted(reserved & _names(forward.model.graph))
    if clash:
        raise DataError(f"the model has a value named {clash[0]!r}, which a training graph needs", "rename it")
