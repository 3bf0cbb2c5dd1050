"""Several training steps in one graph, so that parameters and states stay inside it from step to step.

A small net's step is half the way into onnxruntime and back, and the guard. Here a `Scan` takes k batches, and what the
guard would have said is judged after the last of them: where all k would have been taken, the result is theirs, bit for
bit; else ``skipped`` says so, and the caller drops the result and takes the k steps singly, guarded one by one.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np
import onnx
from onnx import TensorProto, helper

from server_bridge.bundles.gradients.forward import Forward
from server_bridge.bundles.gradients.graph import GraphBuilder, needed_nodes, read_by
from server_bridge.bundles.gradients.guards import (
    CLIP_NORM,
    GRADIENT_NORM,
    REPORTS,
    UPDATE_NORM,
    UPDATE_NORM_CAP,
    Step,
    Unguarded,
    write_skipped,
    write_unguarded,
)
from server_bridge.bundles.gradients.losses import LOSS
from server_bridge.bundles.gradients.optimisers import LEARNING_RATE, STEP, Optimiser
from server_bridge.bundles.gradients.rules import FLAT, RULES

STEPS = "steps"
"""The free first dimension of what every step has its own of."""
BOUNDS = (CLIP_NORM, UPDATE_NORM_CAP)
"""Scalars of the single step that a series has not: it is for steps without bounds."""
MOST_TRAINED, MOST_VALUES = 65_536, 4096
"""Trained values, and values of a sample in the whole net, up to which a series is written: it saves ten microseconds
a step, and beyond a step takes so long that this is nothing."""
_ASK_FOR_SIZES = ("Shape", "Size")
_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
_PLAIN = ("And", "Constant", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "Or", "Scaler", "Xor")
"""Operators without a gradient that a small net may have below what it trains, or beside it."""


@dataclass(frozen=True)
class Interface:
    """What a single step is fed.

    Args:
        batch: of each step its own: the model's inputs, and labels.
        changing: what the step changes.
        fixed: the same for all steps.
    """

    batch: Sequence[onnx.ValueInfoProto]
    changing: Sequence[onnx.ValueInfoProto]
    fixed: Sequence[onnx.ValueInfoProto]


@dataclass(frozen=True)
class Series:
    """The parts of the graph.

    Args:
        nodes: in order.
        inputs: named as the single step's. What each step has its own of, rate and number of the step among it, has a
            first dimension more.
        outputs: named as the single step's; loss and reports are (k,).
    """

    nodes: Sequence[onnx.NodeProto]
    inputs: Sequence[onnx.ValueInfoProto]
    outputs: Sequence[onnx.ValueInfoProto]


def deserves_series(forward: Forward, trainable: Collection[str]) -> bool:
    """Whether a net is so small that its steps are worth taking several at a time.

    Not where there is a convolution, which onnxruntime optimises otherwise inside a loop where it is frozen, so that
    results are not the same to the bit; nor where an operator is not known to be plain arithmetic.
    """
    known = {name for name in (*RULES, *FLAT, *_PLAIN) if "Conv" not in name}
    if any(node.op_type not in known or node.domain not in _DOMAINS for node in forward.model.graph.node):
        return False
    trained = sum(prod(size or 0 for size in forward.shapes[name]) for name in trainable)
    graph = forward.model.graph
    values = [*(value.name for value in graph.input), *(name for node in graph.node for name in node.output if name)]
    shapes = [forward.shapes.get(name) for name in values]
    if trained > MOST_TRAINED or any(shape is None or None in shape[1:] for shape in shapes):
        return False
    return sum(prod(size or 0 for size in shape[1:]) for shape in shapes if shape) <= MOST_VALUES


def write_series(body: GraphBuilder, step: Step, optimiser: Optimiser, fed: Interface) -> Series:
    """Write k steps.

    Args:
        body: forward, loss and gradients of one batch.
        step: see `Step`.
        optimiser: see `Optimiser`.
        fed: see `Interface`.
    """
    before, after = body.branch(), body.branch()
    of_the_step = [LEARNING_RATE, STEP] if STEP in optimiser.scalars else [LEARNING_RATE]
    corrections = _corrections(before, optimiser)
    taken = write_unguarded(body, replace(step, corrections=corrections), optimiser)
    ends = {f"out.{value.name}": taken.values[value.name] for value in fed.changing}
    told = _told(after, step, taken)
    scanned = [*fed.batch, *(_float(name) for name in (LEARNING_RATE, *corrections))]
    nodes = _moved_out(body, before, fed, [*ends.values(), *told.values()])
    scan = _scan(body, nodes, fed.changing, scanned, ends, told)
    return Series(
        [*before.nodes, scan, *after.nodes],
        [*map(_with_steps, fed.batch), *fed.changing, *fed.fixed, *(_float(name, STEPS) for name in of_the_step)],
        [*(_float(name, STEPS) for name in (LOSS, *REPORTS)), *(_renamed(v, f"out.{v.name}") for v in fed.changing)],
    )


def _corrections(before: GraphBuilder, optimiser: Optimiser) -> Sequence[str]:
    """Those of all k steps, (k,) each."""
    if STEP not in optimiser.scalars:
        return ()
    return optimiser.corrections(before, before.emit("Unsqueeze", STEP, before.integers([1])), several=True)


def _told(after: GraphBuilder, step: Step, taken: Unguarded) -> dict[str, str]:
    """What leaves the body beside what changes, by the name it gets outside; what is made of it, for all k at once."""
    told = {LOSS: LOSS}
    lengths = after.fresh("lengths") if step.scaled else GRADIENT_NORM
    told[lengths] = taken.length
    if step.scaled:
        after.emit_as(GRADIENT_NORM, "Div", lengths, LEARNING_RATE)
    if taken.update_norm == taken.length:
        after.emit_as(UPDATE_NORM, "Identity", lengths)
    else:
        told[UPDATE_NORM] = taken.update_norm
    counted = None if step.counted is None else after.fresh("counted")
    if counted is not None and step.counted is not None:
        told[counted] = step.counted
    write_skipped(after, GRADIENT_NORM, counted)
    return told


def _moved_out(body: GraphBuilder, before: GraphBuilder, fed: Interface, ends: Iterable[str]) -> list[onnx.NodeProto]:
    """The nodes that have to run in every step; the others go ``before``.

    A question for the size of a batch goes to the first: they are alike.
    """
    batch = {value.name for value in fed.batch}
    inner = batch | {value.name for value in fed.changing} | {LEARNING_RATE, STEP}
    first: dict[str, str] = {}
    kept = []
    for node in needed_nodes(body.nodes, ends):
        if node.op_type in _ASK_FOR_SIZES and node.input[0] in batch:
            name = node.input[0]
            if name not in first:
                first[name] = before.emit("Gather", name, before.constant(np.array(0, dtype=np.int64)))
            node.input[0] = first[name]
        if inner.intersection(read_by(node)):
            kept.append(node)
            inner.update(node.output)
        else:
            before.nodes.append(node)
    return kept


def _scan(
    body: GraphBuilder,
    nodes: Sequence[onnx.NodeProto],
    changing: Sequence[onnx.ValueInfoProto],
    scanned: Sequence[onnx.ValueInfoProto],
    ends: Mapping[str, str],
    told: Mapping[str, str],
) -> onnx.NodeProto:
    """The loop; inside, what has a name of the outside gets another."""
    inner = {value.name: body.fresh(value.name) for value in (*changing, *scanned)} | {LOSS: body.fresh(LOSS)}
    steps = helper.make_graph(
        [_reread(node, inner) for node in nodes],
        STEPS,
        [_renamed(value, inner[value.name]) for value in (*changing, *scanned)],
        [
            *(_renamed(value, ends[f"out.{value.name}"]) for value in changing),
            *(_float(inner.get(name, name)) for name in told.values()),
        ],
    )
    read = [value.name for value in (*changing, *scanned)]
    return helper.make_node(
        "Scan", read, [*ends, *told], name=body.fresh("Scan"), body=steps, num_scan_inputs=len(scanned)
    )


def _reread(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """The node with other names for values, in its branches, too."""
    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.input[:] = [names.get(name, name) for name in node.input]
    made.output[:] = [names.get(name, name) for name in node.output]
    for attribute in made.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            inner = [_reread(one, names) for one in graph.node]
            del graph.node[:]
            graph.node.extend(inner)
    return made


def _renamed(value: onnx.ValueInfoProto, name: str) -> onnx.ValueInfoProto:
    made = onnx.ValueInfoProto()
    made.CopyFrom(value)
    made.name = name
    return made


def _with_steps(value: onnx.ValueInfoProto) -> onnx.ValueInfoProto:
    """The value, k times."""
    kind = value.type.tensor_type
    sizes = [size.dim_value if size.HasField("dim_value") else size.dim_param or None for size in kind.shape.dim]
    return helper.make_tensor_value_info(value.name, kind.elem_type, [STEPS, *sizes])


def _float(name: str, *sizes: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes)
