"""From a trained classifier to a bundle of tasks on its frozen layers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle, refuse_taken, write_bundle
from edge_agent.wire.manifest import CLASSES_CAP, FILES_CAP, TASKS_CAP, OptimiserName, is_task_name
from edge_agent.wire.tensors import Weights
from server_bridge.bundles.calibrate import BATCH_SIZE_DEFAULT, Outputs
from server_bridge.bundles.checks import checked_model, refuse_name
from server_bridge.bundles.gradients.forward import Forward
from server_bridge.bundles.gradients.optimisers import OPTIMISERS
from server_bridge.bundles.monitors import Noted, Told
from server_bridge.bundles.source import read_model, served_model
from server_bridge.bundles.tailor.blocks import Block, initial_parameters, plan_block
from server_bridge.bundles.tailor.files import LOSS, TaskFiles, TaskGraph, task_files
from server_bridge.bundles.tailor.graph import refuse_taken_names, tailored
from server_bridge.bundles.tailor.layers import Backbone, read_backbone
from server_bridge.bundles.tailor.scoring import read_task_data, task_monitors

PREVIOUS_DEFAULT = 3
COMMON_FILES = 2  # weights and frozen tensors


@dataclass(frozen=True)
class TailorSettings:
    """What a model does not say of its tasks.

    Args:
        tasks: the number of classes of each, None for the model's own; the first is that of samples that name none.
        previous: k: proxies come from the k layers before; 0: each task is a head alone.
        at: values at which layers end; found by themselves if empty.
        name: the bundle's.
        optimisers: of each task's training graphs.
        monitor_batch: labelled samples a batch of the drift monitor.
        seed: of the proxies, of heads that the model has none for, and of the calibration's resampling.
    """

    tasks: Mapping[str, int | None]
    previous: int = PREVIOUS_DEFAULT
    at: Sequence[str] = ()
    name: str = "model"
    optimisers: Sequence[OptimiserName] = field(default_factory=lambda: tuple(OPTIMISERS))
    monitor_batch: int = BATCH_SIZE_DEFAULT
    seed: int = 0


def tailor_bundle(
    model: onnx.ModelProto | Path,
    data: Path,
    settings: TailorSettings,
    out: Path,
    *,
    told: Told = lambda name, share: None,
    noted: Noted = lambda notes: None,
) -> Bundle:
    """Freeze a classifier, give each task a block of its own on it, calibrate the monitor, write the bundle.

    A task with as many classes as the model begins with the model's own head.

    Args:
        model: an ONNX classifier, or its file.
        data: held-out NPZ for the calibration, rows of any task (column ``task``).
        settings: see `TailorSettings`.
        out: a directory that does not exist, or is empty.
        told: of the calibration's progress.
        noted: given what an operator should know of the calibration.

    Raises:
        DataError: the model, the tasks or the data are unfit (named, with the remedy).
        StorageError: the bundle cannot be written.
    """
    refuse_name(settings.name)
    refuse_taken(out)
    made = tailored_files(model, settings)
    held_out = read_task_data(data, made.manifest)
    monitors = task_monitors(
        made.manifest,
        lambda task: outputs_of(made, task),
        held_out,
        batch_size=settings.monitor_batch,
        seed=settings.seed,
        told=told,
    )
    noted(monitors.notes)
    return write_bundle(out, *monitors.in_bundle(made.manifest, made.files))


def tailored_files(model: onnx.ModelProto | Path, settings: TailorSettings) -> TaskFiles:
    """All of the bundle but its monitors.

    Raises:
        DataError: the model or the tasks are unfit (named, with the remedy).
    """
    _refuse_tasks(settings)
    served = served_model(checked_model(read_model(model)), LOSS)
    backbone = read_backbone(Forward.read(served), settings.at)
    classes = _classes(backbone)
    blocks = [
        plan_block(backbone, task, own or classes, previous=settings.previous) for task, own in settings.tasks.items()
    ]
    refuse_taken_names(served, blocks)
    rng = np.random.default_rng(settings.seed)
    graphs = [_task_graph(backbone, block, rng) for block in blocks]
    return task_files(graphs, settings.name, settings.optimisers)


def outputs_of(made: TaskFiles, task: str) -> Outputs:
    """What predicts a task's rows."""
    session, output = made.session(task), made.manifest.outputs[0].name
    return lambda features: session.run(features)[output]


def _task_graph(backbone: Backbone, block: Block, rng: np.random.Generator) -> TaskGraph:
    features = _feature_count(backbone, block)
    head = _own_head(backbone, block, features)
    parameters = initial_parameters(block, features, rng, head)
    return TaskGraph(block, tailored(backbone.forward.model, block, parameters))


def _own_head(backbone: Backbone, block: Block, features: int) -> Weights:
    """The model's head where the task's can begin as that: as many classes, one matrix and an optional bias."""
    model = backbone.forward.model
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes = {name: node for node in model.graph.node for name in node.output}
    node, bias = nodes.get(model.graph.output[0].name), np.zeros(block.classes, np.float32)
    if node is not None and node.op_type in ("LogSoftmax", "Identity"):
        node = nodes.get(node.input[0])
    if node is not None and node.op_type == "Add":
        added = [name for name in node.input if name in tensors]
        node = next((nodes[name] for name in node.input if name in nodes), None)
        bias = numpy_helper.to_array(tensors[added[0]]) if added else np.zeros(0, np.float32)
    if node is None or node.op_type not in ("Gemm", "MatMul") or node.input[0] != block.features or block.pooled:
        return {}
    attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    if node.input[1] not in tensors or attributes.get("alpha", 1.0) != 1.0 or attributes.get("beta", 1.0) != 1.0:
        return {}
    weight = numpy_helper.to_array(tensors[node.input[1]])
    if attributes.get("transB", 0):
        weight = weight.T
    if len(node.input) > 2 and node.input[2] in tensors:
        bias = numpy_helper.to_array(tensors[node.input[2]])
    if weight.shape != (features, block.classes) or bias.shape != (block.classes,):
        return {}
    return {block.head[0]: np.ascontiguousarray(weight, np.float32), block.head[1]: bias.astype(np.float32)}


def _feature_count(backbone: Backbone, block: Block) -> int:
    shape = backbone.forward.shapes.get(block.features, ())
    count = shape[1] if len(shape) > 1 else None
    if count is None or shape[0] is not None or len(shape) == 3:
        raise DataError(
            f"the head's input {block.features!r} has shape {list(shape)}; (batch, features) or an image is needed",
            "end the model's last layer with a pooling or Flatten",
        )
    return count


def _classes(backbone: Backbone) -> int:
    output = backbone.forward.model.graph.output[0].name
    shape = backbone.forward.shapes.get(output, ())
    if len(shape) != 2 or shape[1] is None or shape[1] < 2:
        raise DataError(f"output {output!r} has shape {list(shape)}; a classifier gives (batch, classes)")
    return shape[1]


def _refuse_tasks(settings: TailorSettings) -> None:
    if not settings.tasks:
        raise DataError("no task is named", "give --task NAME, or NAME=CLASSES, once for each")
    for task, classes in settings.tasks.items():
        if not is_task_name(task):
            raise DataError(f"task {task!r} has signs that no name may have", "give 1 to 64 of A-Z a-z 0-9 _ -")
        if classes is not None and not 2 <= classes <= CLASSES_CAP:
            raise DataError(f"task {task!r} has {classes} classes, 2 to {CLASSES_CAP} are possible")
    if not settings.optimisers:
        raise DataError("no optimiser is named", f"there are: {', '.join(OPTIMISERS)}")
    tasks, files = len(settings.tasks), len(settings.tasks) * (1 + len(settings.optimisers))
    if tasks > TASKS_CAP or files > FILES_CAP - COMMON_FILES:
        raise DataError(
            f"{tasks} tasks with {len(settings.optimisers)} optimisers are {files} graphs: a bundle has at most"
            f" {TASKS_CAP} tasks and {FILES_CAP - COMMON_FILES} graphs of theirs",
            "name fewer tasks, or one optimiser with --optimiser adam",
        )
    if len(set(settings.at)) != len(settings.at):
        raise DataError("a value is named twice with --at", "name each once")
