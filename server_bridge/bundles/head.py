"""The part of a model above an embedding, cut out: it is trained on embeddings that were computed once."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import onnx
from onnx import TensorProto, helper

from edge_agent.errors import DataError
from edge_agent.wire.manifest import HeadSpec
from server_bridge.bundles.checks import for_training
from server_bridge.bundles.gradients.batch_statistics import is_batch_normalisation
from server_bridge.bundles.gradients.expansion import expanded
from server_bridge.bundles.gradients.forward import Forward
from server_bridge.bundles.gradients.graph import read_by
from server_bridge.bundles.gradients.objective import Objective
from server_bridge.bundles.gradients.training_graph import Plan, TrainingGraph, training_graph
from server_bridge.bundles.settings import BuildSettings

HEAD_FILE = "head.onnx"
_DENSE = ("Gemm", "MatMul")
_NAMED = 8


@dataclass(frozen=True)
class Head:
    """A model's head.

    Attributes:
        model: the nodes above the embedding, which is its one input; its output is the whole's first.
        trainable: the bundle's trainable tensors that it reads, running statistics among them.
    """

    model: onnx.ModelProto
    trainable: tuple[str, ...]

    @property
    def embedding(self) -> str:
        """The value that it reads."""
        return str(self.model.graph.input[0].name)

    @property
    def spec(self) -> HeadSpec:
        """The manifest's entry."""
        return HeadSpec(embedding=self.embedding, file=HEAD_FILE, trainable=list(self.trainable))


def cut_head(served: onnx.ModelProto, trainable: Collection[str], embedding: str | None) -> Head:
    """Cut a served model at an embedding.

    Args:
        served: see `served_model`.
        trainable: the bundle's trainable tensors, running statistics among them.
        embedding: the value to cut at; None: what the last dense layer reads.

    Raises:
        DataError: no such value; one that is no float32 of a fixed size a sample; a way from the inputs to the output
            around it; a trainable tensor that is used on both sides, or none above it (named).
    """
    forward = Forward.read(served)
    value = last_dense_input(served) if embedding is None else embedding
    shape = _fixed_shape(forward, value)
    above = _nodes_above(served, value)
    below = [node for node in served.graph.node if node not in above]
    read = set[str]().union(*(read_by(node) for node in above))
    chosen = tuple(name for name in trainable if name in read)
    if not chosen:
        raise DataError(f"no trainable tensor lies above {value!r}", "give --embedding a value further down")
    shared = sorted(set(chosen).intersection(*([set().union(*(read_by(node) for node in below))] if below else [()])))
    if shared:
        raise DataError(
            f"tensor {shared[0]!r} is used above {value!r} and below it",
            "leave it out of --trainable, or give --embedding a value further down",
        )
    graph = helper.make_graph(
        above,
        f"{served.graph.name or 'model'}.head",
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, ["batch", *shape])],
        [served.graph.output[0]],
        [tensor for tensor in served.graph.initializer if tensor.name in read],
    )
    model = helper.make_model(graph, opset_imports=served.opset_import, ir_version=served.ir_version)
    onnx.checker.check_model(model)
    return Head(model, chosen)


def head_graphs(head: Head, settings: BuildSettings) -> list[TrainingGraph]:
    """The head's training graph by every optimiser, ``head-<optimiser>``; with a proximal term ``prox-head-...``.

    Without labels ``entropy-head-...`` and ``pseudo-label-head-...``, where the settings want these objectives.

    Raises:
        DataError: an operator of the head has no gradient rule (node, operator, attribute named).
    """
    norms = [node for node in head.model.graph.node if is_batch_normalisation(node)]
    renewed = {name for node in norms for name in node.input[3:5]} if settings.statistics == "batch" else set()
    trainable = [name for name in head.trainable if name not in renewed]
    forward = Forward.read(expanded(for_training(head.model), set(trainable)))
    objectives = {"head": settings.objective()}
    objectives |= {"prox-head": settings.objective()} if settings.proximal else {}
    objectives |= {f"{loss}-head": Objective(loss) for loss in settings.label_free}
    planned = [
        Plan(
            f"{name}-{optimiser}",
            trainable,
            objective,
            optimiser,
            statistics="batch" if renewed else "frozen",
            anchored=name == "prox-head",
            weight_decay=settings.weight_decay,
            embedding=head.embedding,
        )
        for name, objective in objectives.items()
        for optimiser in settings.optimisers
    ]
    return [training_graph(forward, head.model.graph.output[0].name, plan) for plan in planned]


def with_embedding(served: onnx.ModelProto, head: Head) -> onnx.ModelProto:
    """The served model with the head's embedding among its outputs; itself if it is one already."""
    if head.embedding in (output.name for output in served.graph.output):
        return served
    made = onnx.ModelProto()
    made.CopyFrom(served)
    made.graph.output.append(head.model.graph.input[0])
    return made


def last_dense_input(served: onnx.ModelProto) -> str:
    """What the last Gemm or MatMul with constant weights reads on the way to the output.

    Raises:
        DataError: there is none, or it reads a model input: nothing would lie below it.
    """
    live = _live(served)
    for node in reversed(_nodes_above(served, "")):
        data = [name for name in node.input[:2] if name in live]
        if node.op_type in _DENSE and node.domain in ("", "ai.onnx") and len(data) == 1:
            if data[0] in (value.name for value in served.graph.input):
                raise DataError("the model's only dense layer reads its input", "it has no embedding: train it whole")
            return str(data[0])
    raise DataError("the model has no dense layer to cut at", "name the value with --embedding")


def _nodes_above(served: onnx.ModelProto, value: str) -> list[onnx.NodeProto]:
    """The nodes that the first output depends on, the way down ending at a value; its own nodes, in their order.

    Raises:
        DataError: it depends on a model input by a way around that value, or not on that value at all.
    """
    needed, kept = {str(served.graph.output[0].name)}, []
    for node in reversed(served.graph.node):
        if not needed.intersection(node.output) - {value}:
            continue
        if value in node.output:
            raise DataError(f"the node that gives {value!r} gives more that is used", "name another with --embedding")
        needed.update(read_by(node))
        kept.append(node)
    inputs = sorted(needed.intersection(entry.name for entry in served.graph.input) - {value})
    if value and inputs:
        raise DataError(
            f"the output depends on input {inputs[0]!r} by a way around {value!r}",
            "give --embedding a value that everything passes through",
        )
    if value and value not in needed:
        raise DataError(f"the output does not depend on {value!r}", "name a value of the graph with --embedding")
    return kept[::-1]


def _live(served: onnx.ModelProto) -> set[str]:
    """The values that depend on the model's inputs."""
    live = {str(value.name) for value in served.graph.input}
    for node in served.graph.node:
        if live.intersection(read_by(node)):
            live.update(node.output)
    return live


def _fixed_shape(forward: Forward, value: str) -> Sequence[int]:
    """The shape of one sample's embedding."""
    produced = [name for node in forward.model.graph.node for name in node.output]
    if value not in produced:
        last = ", ".join(repr(name) for name in produced[-_NAMED:])
        raise DataError(f"embedding {value!r} is no value that the graph computes", f"the last that it does: {last}")
    shape = forward.shapes.get(value)
    if shape is None or len(shape) < 2 or shape[0] is not None or None in shape[1:]:
        raise DataError(
            f"embedding {value!r} has shape {None if shape is None else list(shape)}",
            "it needs the batch first and fixed sizes after it",
        )
    if forward.element_types.get(value) != TensorProto.FLOAT:
        raise DataError(f"embedding {value!r} is not float32", "name one that is, with --embedding")
    return [size for size in shape[1:] if size is not None]
