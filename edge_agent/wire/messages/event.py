"""``up/<gw>/event``: outbox messages, acknowledged by the bridge after its commit."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from edge_agent.wire.blobs import BlobReference
from edge_agent.wire.codec import (
    Count,
    Digest,
    Finite,
    Identifier,
    Integer,
    Items,
    Message,
    Name,
    SequenceRange,
    Text,
    WireModel,
    Word,
)
from edge_agent.wire.messages.fault import SensorFaultEvent
from edge_agent.wire.messages.flag import FlagEvent

EVENT_CAP_BYTES = 64 * 1024


class UpdateLifecycleEvent(WireModel):
    """A step of the over-the-air state machine, or a refusal with its reason.

    ``step`` is a state of the transition table, or ``refused``, ``skipped``.
    ``map_digest`` names the release map's bytes where the step is about a map.
    """

    kind: Literal["update"] = "update"
    step: Word
    reason: Word | None = None
    detail: Text = ""
    bundle: Digest | None = None
    weights: Digest | None = None
    cohort: Name | None = None
    version: Count | None = None
    map_digest: Digest | None = None


class CountsBucket(WireModel):
    """Right and labelled holdout samples of one span of sample time; totals so far.

    ``bucket`` counts spans of ``bucket_s`` seconds of sample time. A later event about the
    same (weights, bucket) replaces an earlier one.
    """

    bucket: Integer
    labelled: Count
    right: Count
    loss_sum: Finite

    @model_validator(mode="after")
    def _right_are_labelled(self) -> Self:
        if self.right > self.labelled:
            raise ValueError("more right than labelled")
        return self


class CountsEvent(WireModel):
    """Holdout counts for the named weights.

    Where ``release`` is given, ``weights`` is not it but an overlay that the gateway made on it from
    ``overlay_batches`` batches; the version is the release's.
    """

    kind: Literal["counts"] = "counts"
    bundle: Digest
    weights: Digest
    weights_version: Count
    cohort: Name
    bucket_s: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    buckets: Annotated[Items[CountsBucket], Field(max_length=200)]
    release: Digest | None = None
    overlay_batches: Count = 0


class BlobMissingEvent(WireModel):
    """A blob the gateway needs has stayed silent."""

    kind: Literal["blob-missing"] = "blob-missing"
    blob: BlobReference


class TrainingEvent(WireModel):
    """A local round goes on (``step`` progress), ended (done) or came to nothing (failed, with why in ``detail``).

    ``epochs``: passes over the training set done, of ``of_epochs``. ``loss``: mean over the last batch.
    """

    kind: Literal["training"] = "training"
    command_id: Name
    step: Word
    detail: Text = ""
    samples: Count = 0
    duration_s: Finite = 0.0
    epochs: Finite = 0.0
    of_epochs: Count = 0
    loss: Finite | None = None


class ErrorEvent(WireModel):
    """Something went wrong that an operator should see."""

    kind: Literal["error"] = "error"
    place: Name
    problem: Text
    hint: Text = ""


EventBody = Annotated[
    FlagEvent | UpdateLifecycleEvent | CountsEvent | BlobMissingEvent | TrainingEvent | ErrorEvent | SensorFaultEvent,
    Field(discriminator="kind"),
]


class Event(Message):
    """One outbox message.

    (``epoch``, ``sequence``) is its identity; ``low`` is the lowest sequence still held and
    ``dropped`` the ranges (both ends included) shed by the outbox's caps, so that the bridge
    keeps a low-water mark and a small set of gaps.
    """

    gateway: Identifier
    epoch: Name
    sequence: Count
    low: Count
    dropped: Annotated[Items[SequenceRange], Field(max_length=64)] = []
    time_s: Finite
    body: EventBody
