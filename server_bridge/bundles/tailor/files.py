"""The files and the manifest of a bundle with tasks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from edge_agent.errors import DataError
from edge_agent.model.bundle import FROZEN, WEIGHTS, Bundle, file_digests
from edge_agent.model.inference import INFERENCE_GRAPH
from edge_agent.model.session import Session
from edge_agent.wire.manifest import LossName, Manifest, OptimiserName, TaskSpec, TrainingGraphSpec
from edge_agent.wire.tasks import task_named, weights_of
from edge_agent.wire.tensors import Weights, encode_weights
from server_bridge.bundles.checks import for_training
from server_bridge.bundles.gradients.expansion import expanded
from server_bridge.bundles.gradients.forward import Forward
from server_bridge.bundles.gradients.training_graph import Plan, TrainingGraph, training_graph
from server_bridge.bundles.inference_file import outside_file
from server_bridge.bundles.manifest_of import manifest_of
from server_bridge.bundles.settings import BuildSettings
from server_bridge.bundles.tailor.blocks import Block, parameter_names
from server_bridge.bundles.tailor.graph import block_of

LOSS: LossName = "cross-entropy"
OUTSIDE_VALUES = 256
"""A frozen tensor of so many values lies outside the graphs, once for all of them."""


@dataclass(frozen=True)
class TaskGraph:
    """A task of a bundle that is being made.

    Args:
        block: what it adds to the backbone.
        model: its inference graph, every initialiser inside.
    """

    block: Block
    model: onnx.ModelProto

    @property
    def parameters(self) -> Weights:
        """The block's trainable tensors."""
        tensors = {tensor.name: tensor for tensor in self.model.graph.initializer}
        return {name: _float32(tensors[name]) for name in parameter_names(self.block)}


@dataclass(frozen=True)
class TaskFiles:
    """A bundle in memory.

    Args:
        manifest: its monitors are still to be calibrated.
        files: by name, without the manifest.
        weights: all trainable tensors.
        frozen: the tensors outside the graphs that nothing trains; the manifest says which graph takes which.
    """

    manifest: Manifest
    files: Mapping[str, bytes]
    weights: Weights
    frozen: Weights

    def session(self, task: str) -> Session:
        """A task's inference graph, ready to run."""
        chosen = task_named(self.manifest, task)
        file = INFERENCE_GRAPH if chosen is None else chosen.file
        frozen = {name: self.frozen[name] for name in self.manifest.frozen.get(file, [])}
        supplied = {**weights_of(self.manifest, self.weights, chosen), **frozen}
        return Session(file, self.files[file], supplied, threads=1)


def task_files(graphs: Sequence[TaskGraph], name: str, optimisers: Sequence[OptimiserName]) -> TaskFiles:
    """All of a bundle but its monitors.

    Args:
        graphs: at least one; the first is the task of samples that name none.
        name: the bundle's.
        optimisers: of each task's training graphs, ``<task>-<optimiser>``.

    Raises:
        DataError: an operator above a proxy has no gradient rule (node, operator, attribute named), or
            onnxruntime refuses a graph.
    """
    weights = {name: value for graph in graphs for name, value in graph.parameters.items()}
    frozen = _frozen(graphs)
    tasks = [_task(place, graph.block) for place, graph in enumerate(graphs)]
    files = {WEIGHTS: encode_weights(weights)} | ({FROZEN: encode_weights(frozen)} if frozen else {})
    taken: dict[str, list[str]] = {}
    trained: list[TrainingGraph] = []
    for graph, task in zip(graphs, tasks, strict=True):
        files[task.file] = outside_file(graph.model, {WEIGHTS: graph.parameters, FROZEN: frozen})
        taken[task.file] = _held(graph.model, frozen)
        trained += training_graphs(graph, optimisers)
    for step in trained:
        file = step.spec.file
        files[file], taken[file] = outside_file(step.model, {FROZEN: frozen}), _held(step.model, frozen)
        Session(file, files[file], {name: frozen[name] for name in taken[file]}, threads=1)
    manifest = _manifest(graphs, weights, trained, tasks, name, files)
    manifest = manifest.model_copy(update={"frozen": {file: names for file, names in taken.items() if names}})
    made = TaskFiles(manifest, files, weights, frozen)
    for task in tasks:
        made.session(task.name)
    return made


def training_graphs(graph: TaskGraph, optimisers: Sequence[OptimiserName]) -> list[TrainingGraph]:
    """A step of each optimiser over a task's tensors alone; none of several steps, the files are many as it is.

    Raises:
        DataError: an operator above a proxy has no gradient rule (node, operator, attribute named).
    """
    names = parameter_names(graph.block)
    forward = Forward.read(expanded(for_training(graph.model), names))
    output, task = graph.model.graph.output[0].name, graph.block.task
    objective = BuildSettings([], LOSS).objective()
    plans = [Plan(f"{task}-{each}", names, objective, each) for each in optimisers]
    return [training_graph(forward, output, plan).alone for plan in plans]


def task_graphs(bundle: Bundle) -> list[TaskGraph]:
    """The tasks of a bundle that was tailored, with its initial weights.

    Raises:
        DataError: it has no tasks, or a graph that was not made by tailoring.
    """
    weights = bundle.initial_weights()
    graphs = [_read(bundle, task, weights | bundle.frozen(task.file)) for task in bundle.manifest.tasks]
    if not graphs:
        raise DataError(f"bundle {bundle.manifest.name!r} has no tasks", "make one with `server-bridge bundle tailor`")
    return graphs


def optimisers_of(manifest: Manifest) -> list[OptimiserName]:
    """The optimisers that a bundle's tasks have graphs of, in their order."""
    return list(dict.fromkeys(graph.optimiser for graph in manifest.training if graph.task is not None))


def _read(bundle: Bundle, task: TaskSpec, tensors: Weights) -> TaskGraph:
    model = onnx.ModelProto.FromString(bundle.read(task.file))
    block = block_of(model)
    if block is None:
        raise DataError(f"{bundle.path / task.file} was not made by `server-bridge bundle tailor`")
    for tensor in model.graph.initializer:
        if tensor.data_location == TensorProto.EXTERNAL:
            tensor.CopyFrom(numpy_helper.from_array(tensors[tensor.name], tensor.name))
    return TaskGraph(block, model)


def _frozen(graphs: Sequence[TaskGraph]) -> Weights:
    """What several graphs would else hold each."""
    trained = {name for graph in graphs for name in graph.parameters}
    return {
        tensor.name: _float32(tensor)
        for graph in graphs
        for tensor in graph.model.graph.initializer
        if tensor.name not in trained
        and tensor.data_type == TensorProto.FLOAT
        and np.prod(tensor.dims) >= OUTSIDE_VALUES
    }


def _held(model: onnx.ModelProto, frozen: Weights) -> list[str]:
    """The frozen tensors that a graph has: onnxruntime takes no others."""
    return [tensor.name for tensor in model.graph.initializer if tensor.name in frozen]


def _task(place: int, block: Block) -> TaskSpec:
    file = f"infer-{block.task}.onnx" if place else INFERENCE_GRAPH
    return TaskSpec(name=block.task, file=file, classes=block.classes)


def _manifest(
    graphs: Sequence[TaskGraph],
    weights: Weights,
    trained: Sequence[TrainingGraph],
    tasks: Sequence[TaskSpec],
    name: str,
    files: Mapping[str, bytes],
) -> Manifest:
    plain = manifest_of(graphs[0].model, weights, trained, BuildSettings([], LOSS, name), files)
    roles = {tensor: f"task:{graph.block.task}" for graph in graphs for tensor in graph.parameters}
    specs = [spec.model_copy(update={"role": roles[spec.name]}) for spec in plain.trainable]
    steps = [_of_task(spec, graphs) for spec in plain.training]
    changed = {"trainable": specs, "training": steps, "tasks": list(tasks), "files": file_digests(files)}
    return plain.model_copy(update=changed)


def _of_task(spec: TrainingGraphSpec, graphs: Sequence[TaskGraph]) -> TrainingGraphSpec:
    owner = next(graph.block.task for graph in graphs if spec.trainable[-1] == graph.block.head[1])
    return spec.model_copy(update={"task": owner})


def _float32(tensor: onnx.TensorProto) -> NDArray[np.float32]:
    array: NDArray[np.float32] = numpy_helper.to_array(tensor)
    return array.astype(np.float32)
