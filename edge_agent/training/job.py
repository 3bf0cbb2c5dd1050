"""What a worker is asked and what it answers: two JSON files."""

from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from edge_agent.errors import DataError
from edge_agent.wire.codec import Count, Digest, Finite, Name, Table, Text, WireModel

MIB = 1024 * 1024
JOB_FILE = "job.json"
RESULT_FILE = "result.json"
UPDATE_FILE = "update.bin"
RESIDUAL_FILE = "residual.bin"
PERSONAL_FILE = "personal.safetensors"
OVERLAY_FILE = "overlay.bin"
LOG_FILE = "worker.log"
STORAGE_EXIT = 74
"""A worker's exit status when the disk refused its result: EX_IOERR of sysexits.h."""

FailureReason = Literal[
    "too-few-samples",
    "too-few-classes",
    "bad-samples",
    "non-finite",
    "made-worse",
    "too-slow",
    "out-of-memory",
    "killed-duration",
    "storage",
    "crashed",
    "bad-job",
]
WorkMetrics = dict[str, int | Finite]


class WorkerLimits(WireModel):
    """How the worker confines itself.

    Attributes:
        nice: added to the agent's own niceness.
        address_space_bytes: cap on mapped memory, not on resident memory: an idle onnxruntime
            process maps 190 MB and holds 46 MB (measured, 1.32).
        threads: intra-operator threads of each session.
        scheduling: ``idle`` runs when nobody else wants the processor, ``batch`` and ``normal`` take a share of it.
    """

    nice: Annotated[int, Field(ge=0, le=19)] = 10
    address_space_bytes: Annotated[int, Field(ge=64 * MIB)] = 1024 * MIB
    threads: Annotated[int, Field(ge=1, le=64)] = 1
    scheduling: Literal["idle", "batch", "normal"] = "batch"


class Job(WireModel):
    """What both kinds of work need.

    Attributes:
        duration_s: the worker is killed when it has run so long.
        weights_file: the weights to train from, or to evaluate; their SHA-256 is ``weights``.
        personal_file: this gateway's values of the bundle's personal tensors; None: the bundle's own.
    """

    command_id: Name
    duration_s: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    limits: WorkerLimits = WorkerLimits()
    bundle_dir: Path
    bundle: Digest
    weights_file: Path
    weights: Digest
    personal_file: Path | None = None
    samples_db: Path
    max_samples: Annotated[int, Field(ge=1)]


class Lineage(WireModel):
    """Which rounds may pass on a coding's error: those of one adaptation and cohort, on one graph of one bundle."""

    bundle: Digest
    training_graph: Name
    task: Name | None = None
    adaptation: Name
    cohort: Name
    round: Count

    def follows(self, earlier: "Lineage") -> bool:
        """Whether this is a later round of the same line.

        The bases of one cohort's rounds in one adaptation descend from each other. Another adaptation or cohort
        begins at other weights, and the same round again is a second try whose first error was never sent.
        """
        return self.model_copy(update={"round": earlier.round}) == earlier and self.round > earlier.round


class TrainingJob(Job):
    """One local round.

    Attributes:
        from_sample: id of the first sample that may be trained on; None for all.
        learning_rate, epochs, batch_size: as ordered; a last partial batch of one row is left out.
        seed: of the minibatch order.
        split_half: whether the update's reliability is measured too, for as much time again.
        scalars, schedule, learning_rate_min, task, send_worse: as ordered.
        label_shift: whether a graph without labels is told the estimated shares of the classes, not the bundle's.
        min_classes: fewer different labels in the training set refuse the round.
        rehearsal_share, balanced: see :class:`edge_agent.samples.selection.Mixture`.
        lineage: where the round belongs; None: its coding's error is not kept.
        residual_file: where the error of the update before lies, if there is one.
        embeddings_file: where a head's round keeps its samples' embeddings for the next; None: nowhere.
    """

    kind: Literal["train"] = "train"
    training_graph: Name
    from_sample: str | None = None
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    epochs: Annotated[int, Field(ge=1)]
    batch_size: Annotated[int, Field(ge=1)]
    min_samples: Annotated[int, Field(ge=1)]
    seed: Count
    coding: Literal["fp32", "fp16", "int8"] = "fp16"
    split_half: bool = False
    scalars: Annotated[Table[Name, Finite], Field(max_length=64)] = {}
    schedule: Literal["constant", "fed-ade"] = "constant"
    learning_rate_min: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    label_shift: bool = False
    task: Name | None = None
    send_worse: bool = False
    min_classes: Annotated[int, Field(ge=1)] = 1
    rehearsal_share: Annotated[float, Field(ge=0, le=0.9)] = 0.0
    balanced: bool = False
    lineage: Lineage | None = None
    residual_file: Path | None = None
    embeddings_file: Path | None = None


class EvaluationJob(Job):
    """Counts, loss and accuracy of given weights on holdout samples, else proof samples."""

    kind: Literal["evaluate"] = "evaluate"
    since_sample: str | None = None


class AdaptationJob(Job):
    """Following the stream on the release that serves, between rounds: `weights` are the release's.

    Attributes:
        training_graph: one that takes no labels.
        minimum, maximum, steps, label_shift, farthest: as of `edge_agent.training.adapter_settings.AdapterSettings`.
        batch_size: samples that are followed at once; fewer wait for the next time.
        overlay_file: what the time before left; None: the release alone.
        judge_samples: at most so many labelled samples judge.
    """

    kind: Literal["adapt"] = "adapt"
    training_graph: Name
    minimum: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    maximum: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    steps: Annotated[int, Field(ge=1)] = 1
    label_shift: bool = False
    farthest: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    batch_size: Annotated[int, Field(ge=1)]
    overlay_file: Path | None = None
    judge_samples: Annotated[int, Field(ge=1)] = 256


AnyJob = Annotated[TrainingJob | EvaluationJob | AdaptationJob, Field(discriminator="kind")]


class WorkDone(WireModel):
    """The work was done; an update lies beside the result if it was a training."""

    ok: Literal[True] = True
    metrics: WorkMetrics


class WorkFailed(WireModel):
    """The work ended without a result; ``reason`` is a stable word, ``metrics`` what was found out all the same."""

    ok: Literal[False] = False
    reason: FailureReason
    detail: Text = ""
    metrics: WorkMetrics = {}


def read_job(payload: bytes) -> TrainingJob | EvaluationJob | AdaptationJob:
    """A job file.

    Raises:
        DataError: it is no job.
    """
    try:
        return _jobs().validate_json(payload)
    except ValidationError as error:
        raise DataError(f"job file: {error.error_count()} fields are wrong: {error}") from None


def read_result(payload: bytes) -> WorkDone | WorkFailed:
    """A result file.

    Raises:
        DataError: it is no result.
    """
    try:
        return _results().validate_json(payload)
    except ValidationError as error:
        raise DataError(f"result file: {error}") from None


@cache
def _jobs() -> TypeAdapter[TrainingJob | EvaluationJob | AdaptationJob]:
    """Compiled when first needed: not while the agent starts."""
    return TypeAdapter(AnyJob)


@cache
def _results() -> TypeAdapter[WorkDone | WorkFailed]:
    return TypeAdapter(WorkDone | WorkFailed)
