"""A bundle's manifest: what a model takes, gives and trains, and how its drift is judged."""

import math
import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from edge_agent.wire.codec import (
    Count,
    Digest,
    FileName,
    Finite,
    Items,
    Message,
    Name,
    Scalar,
    SchemaVersion,
    Table,
    Text,
    WireModel,
    decode,
)

MANIFEST_CAP_BYTES = 1024 * 1024
TRAINABLE_VALUES_CAP = 2**28  # 1 GiB of float32
CLASSES_CAP = 100_000
TASKS_CAP = 32
FILES_CAP = 64
SAFETENSORS_METADATA = "__metadata__"

LossName = Literal["cross-entropy", "binary-cross-entropy", "mse", "mae", "huber"]
"""What a model is trained on and watched by, with labels."""
LabelFreeLossName = Literal["entropy", "pseudo-label"]
OptimiserName = Literal["sgd", "momentum", "adam", "adamw"]

TASK_PATTERN = r"[A-Za-z0-9_-]{1,64}"
TaskName = Annotated[str, Field(pattern=f"^{TASK_PATTERN}$")]

DType = Literal["float32", "float64", "float16", "int64", "int32", "uint8", "bool"]
Size = Annotated[int, Field(ge=1, le=2**31)]
Dimension = Size | Name
Names = Annotated[Items[Name], Field(max_length=10_000)]


class TensorSpec(WireModel):
    """A graph input or output. A named dimension is free; the first one is the batch."""

    name: Name
    dtype: DType
    shape: Annotated[Items[Dimension], Field(max_length=8)]


class OutputSpec(TensorSpec):
    """A graph output and what it means."""

    role: Literal["logits", "value", "embedding"]


class FeatureSpec(WireModel):
    """A measured quantity behind an input; ``minimum`` and ``maximum``: what its sensor can show at all."""

    name: Name
    unit: Annotated[str, Field(max_length=64)] = ""
    minimum: Finite | None = None
    maximum: Finite | None = None


class TrainableSpec(WireModel):
    """A trainable tensor, named as the graph's initialiser.

    ``role``: shared; personal (it never leaves the gateway); or task:<name>. ``statistic``: a running mean or
    variance, which training renews without a gradient.
    """

    name: Name
    dtype: Literal["float32"]
    shape: Annotated[Items[Size], Field(max_length=8)]
    role: Annotated[str, Field(pattern=rf"^(shared|personal|task:{TASK_PATTERN})$")] = "shared"
    statistic: bool = False


class TrainingGraphSpec(WireModel):
    """A training step in plain ONNX operators.

    Graph inputs, all but the model's own float32: the model's inputs under their own names, or, where ``embedding``
    names an output of the inference graph, its values under that name; ``label_input`` (none for a label-free loss);
    for each trainable ``t`` the parameter ``t`` and, per name ``s`` in ``state``, the optimiser state ``<s>.<t>``
    (zero at first); for each of ``statistics`` (running means and variances, renewed without a gradient) its value;
    where ``anchored``, for each trainable the fixed ``base.<t>`` of the proximal term; the ``class_inputs``, (classes,)
    each; the ``scalars``, shape [], among them ``learning_rate`` and, for Adam, ``step`` (1 for the first step).
    ``defaults`` gives the values of scalars that nobody sets. Outputs: ``loss`` (mean over the batch), the scalars in
    ``reports``, ``out.<t>``, ``out.<s>.<t>`` and ``out.<statistic>``.
    The states of the tensors in ``packed`` lie in one flat state ``<s>.packed``, in that order.
    ``fixed``: trainable tensors of the bundle that it reads, under their own names, and does not change.
    ``task``: the task whose parameters it trains. ``ignore_index``: a label whose samples count for nothing.
    ``series``: a graph of k steps in one, for steps without bounds. It is fed the same but ``clip_norm`` and
    ``update_norm_cap``; model inputs, labels, ``learning_rate`` and ``step`` have a first dimension k more, and so have
    loss and reports. Where one of ``skipped`` is not 0 its result counts for nothing: take the steps singly.
    """

    name: Name
    file: FileName
    series: FileName | None = None
    loss: LossName | LabelFreeLossName
    optimiser: OptimiserName
    trainable: Names
    state: Names
    packed: Names | None = None
    scalars: Names
    label_input: Name | None = None
    ignore_index: Annotated[int, Field(ge=-(2**31), le=2**31 - 1)] | None = None
    statistics: Names = []
    fixed: Names = []
    anchored: bool = False
    class_inputs: Names = []
    defaults: Annotated[Table[Name, Finite], Field(max_length=64)] = {}
    reports: Names = []
    embedding: Name | None = None
    task: Name | None = None


class HeadSpec(WireModel):
    """The part of the inference graph above an embedding, as a graph of its own: from the embedding to the outputs.

    Its only input is the inference graph's output ``embedding`` (role embedding), under that name; the ``trainable``
    tensors, and no others, are supplied from outside. The outputs are those of the inference graph that it gives.
    """

    embedding: Name
    file: FileName
    trainable: Names


class TaskSpec(WireModel):
    """A task: an inference graph of its own, over the tensors of role ``task:<name>`` and those of no task.

    The graph takes the bundle's inputs and gives its outputs; a classification's may have other ``classes``.
    """

    name: TaskName
    file: FileName
    classes: Annotated[int, Field(ge=2, le=CLASSES_CAP)] | None = None


class PromiseSpec(WireModel):
    """What a threshold promises on a stream like the reference, and what that reference can support.

    ``words``: the rate as the operator stated it. ``lowest_rate``: a batch, the least that could be promised.
    ``block_rows``: rows in the blocks that the reference was resampled in; 1: its order says nothing.
    ``effective_batches``: independent batches that the reference is worth.
    """

    words: Text = ""
    lowest_rate: Annotated[float, Field(ge=0, le=1)]
    block_rows: Count = 1
    effective_batches: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0


class MonitorSpec(WireModel):
    """A calibrated drift monitor; its arrays, if any, are the tensors ``<monitor>.*`` of ``drift.safetensors``."""

    schema_version: SchemaVersion = Field(default=1, alias="schema")
    parameters: Annotated[Table[Name, Scalar], Field(max_length=64)]
    batch_size: Annotated[int, Field(ge=1, le=100_000)]
    false_alarm_rate: Annotated[float, Field(ge=0, le=1)]
    false_alarm_unit: Literal["batch"] = "batch"
    evidence: Text = ""
    promise: PromiseSpec | None = None


class Manifest(Message):
    """``manifest.json``; its SHA-256 is the bundle's address.

    The first of ``tasks`` is that of samples that name none. ``frozen``: which tensors of ``frozen.safetensors``, that
    nothing trains, each graph's file takes.
    """

    name: Name
    kind: Literal["classification", "regression"]
    classes: Annotated[int, Field(ge=2, le=CLASSES_CAP)] | None = None
    inputs: Annotated[Items[TensorSpec], Field(min_length=1, max_length=32)]
    outputs: Annotated[Items[OutputSpec], Field(min_length=1, max_length=32)]
    features: Annotated[Items[FeatureSpec], Field(max_length=10_000)] = []
    label_names: Names = []
    loss: LossName
    huber_delta: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    trainable: Annotated[Items[TrainableSpec], Field(min_length=1, max_length=10_000)]
    training: Annotated[Items[TrainingGraphSpec], Field(max_length=64)] = []
    head: HeadSpec | None = None
    tasks: Annotated[Items[TaskSpec], Field(max_length=TASKS_CAP)] = []
    frozen: Annotated[Table[FileName, Names], Field(max_length=64)] = {}
    monitors: Annotated[Table[Name, MonitorSpec], Field(max_length=32)] = {}
    opset: Count
    minimum_agent_version: Name
    files: Annotated[Table[FileName, Digest], Field(max_length=FILES_CAP)]

    @property
    def ignored_label(self) -> int | None:
        """A label that is no class and says that a sample has none; None: every label must be a class."""
        ignored = {graph.ignore_index for graph in self.training} - {None, *range(self.classes or 0)}
        return next(iter(ignored), None)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.kind == "classification") != (self.classes is not None):
            raise ValueError("classes must be given for a classification, and only for it")
        _refuse_repeated("input", [spec.name for spec in self.inputs])
        _refuse_repeated("output", [spec.name for spec in self.outputs])
        _refuse_repeated("training graph", [graph.name for graph in self.training])
        _check_trainable(self.trainable)
        _check_files(self)
        _check_tasks(self)
        _check_head(self)
        return self


def _refuse_repeated(what: str, names: list[str]) -> None:
    if len(set(names)) != len(names):
        raise ValueError(f"{what} names repeat")


def _check_trainable(trainable: list[TrainableSpec]) -> None:
    _refuse_repeated("trainable", [spec.name for spec in trainable])
    if any(spec.name == SAFETENSORS_METADATA for spec in trainable):
        raise ValueError(f"{SAFETENSORS_METADATA!r} cannot be a tensor's name")
    values = sum(math.prod(spec.shape) for spec in trainable)
    if values > TRAINABLE_VALUES_CAP:
        raise ValueError(f"{values} trainable values, the cap is {TRAINABLE_VALUES_CAP}")


def _check_files(manifest: Manifest) -> None:
    names = {spec.name for spec in manifest.trainable}
    for graph in manifest.training:
        unknown = {*graph.trainable, *graph.statistics, *graph.fixed} - names
        if unknown:
            raise ValueError(f"training graph {graph.name!r} trains unknown tensor {min(unknown)!r}")
        for file in (graph.file, graph.series):
            if file is not None and file not in manifest.files:
                raise ValueError(f"training graph {graph.name!r}: file {file!r} is not listed")
    frozen = [*manifest.frozen, "frozen.safetensors"] if manifest.frozen else []
    for required in ("infer.onnx", "weights.safetensors", *frozen):
        if required not in manifest.files:
            raise ValueError(f"file {required!r} is not listed")
    if "manifest.json" in manifest.files:
        raise ValueError("manifest.json cannot list itself")


def _check_head(manifest: Manifest) -> None:
    head = manifest.head
    for graph in manifest.training:
        if graph.embedding is not None and (head is None or head.embedding != graph.embedding):
            raise ValueError(f"training graph {graph.name!r} is fed embedding {graph.embedding!r}, which no head has")
        above = set() if head is None else set(head.trainable)
        if graph.embedding is not None and (outside := {*graph.trainable, *graph.statistics} - above):
            raise ValueError(f"training graph {graph.name!r} trains {min(outside)!r}, which is not in the head")
    if head is None:
        return
    if head.embedding not in {output.name for output in manifest.outputs if output.role == "embedding"}:
        raise ValueError(f"the head's embedding {head.embedding!r} is no output of role embedding")
    if unknown := set(head.trainable) - {spec.name for spec in manifest.trainable}:
        raise ValueError(f"the head trains unknown tensor {min(unknown)!r}")
    if head.file not in manifest.files:
        raise ValueError(f"the head's file {head.file!r} is not listed")


def _check_tasks(manifest: Manifest) -> None:
    names = [task.name for task in manifest.tasks]
    _refuse_repeated("task", names)
    if unknown := {graph.task for graph in manifest.training if graph.task is not None} - set(names):
        raise ValueError(f"task {min(unknown)!r} has no inference graph")
    for task in manifest.tasks:
        if task.file not in manifest.files:
            raise ValueError(f"task {task.name!r}: file {task.file!r} is not listed")
        if (task.classes is None) != (manifest.classes is None):
            raise ValueError(f"task {task.name!r}: classes must be given for a classification, and only for it")
    if manifest.tasks and (manifest.tasks[0].file, manifest.tasks[0].classes) != ("infer.onnx", manifest.classes):
        raise ValueError("the first task must be that of infer.onnx, with the bundle's number of classes")


def is_task_name(name: str) -> bool:
    """Whether ``name`` may name a task."""
    return re.fullmatch(TASK_PATTERN, name) is not None


def read_manifest(payload: bytes) -> Manifest:
    """A manifest from outside.

    Raises:
        WireError: too large, malformed or inconsistent (named).
    """
    return decode(Manifest, payload, cap_bytes=MANIFEST_CAP_BYTES)
