"""``up/<gw>/reply``: answers to commands, and the manifest of an update."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from edge_agent.wire.blobs import ChunkList
from edge_agent.wire.codec import (
    Count,
    Digest,
    Finite,
    Identifier,
    Integer,
    Items,
    Message,
    Name,
    Table,
    Text,
    WireModel,
    Word,
)

REPLY_CAP_BYTES = 256 * 1024

METRIC_LIST_ITEMS = 1000
MetricValue = (
    Integer
    | Finite
    | Annotated[Items[Integer], Field(max_length=METRIC_LIST_ITEMS)]
    | Annotated[Items[Finite], Field(max_length=METRIC_LIST_ITEMS)]
)
Metrics = Annotated[Table[Name, MetricValue], Field(max_length=64)]


class UpdateManifest(WireModel):
    """What a gateway says of an update it holds; the bridge grants its chunks.

    ``digest`` is the encoded update's; its chunk list travels inline.
    """

    coding: Literal["fp32", "fp16", "int8"]
    base: Digest
    digest: Digest
    chunks: ChunkList


class TrainResult(WireModel):
    """A finished local round."""

    kind: Literal["train"] = "train"
    round: Count
    cohort: Name
    update: UpdateManifest
    metrics: Metrics


class TrainFindings(WireModel):
    """What was found out in a local round whose update is not sent; with ``status`` error."""

    kind: Literal["train-findings"] = "train-findings"
    round: Count
    cohort: Name
    metrics: Metrics


class EvaluateResult(WireModel):
    """Counts, loss and accuracy of named weights; never samples."""

    kind: Literal["evaluate"] = "evaluate"
    weights: Digest
    metrics: Metrics


class Done(WireModel):
    """A configure or identify command was carried out."""

    kind: Literal["done"] = "done"


ReplyResult = Annotated[TrainResult | TrainFindings | EvaluateResult | Done, Field(discriminator="kind")]
ReplyStatus = Literal["ok", "accepted", "error", "stale-boot", "sequence-low"]


class Reply(Message):
    """Answers one command.

    ``status``: ``accepted`` when work has begun and a final reply follows; ``stale-boot``
    when the command named another boot id (``boot_id`` here is the right one);
    ``sequence-low`` with ``highest_sequence``; ``error`` with ``reason`` and ``detail``, and of a local round
    with what it found out all the same (``made-worse``: the held-out loss rose beyond noise).
    """

    gateway: Identifier
    boot_id: Name
    command_id: Name
    status: ReplyStatus
    highest_sequence: Count | None = None
    reason: Word | None = None
    detail: Text = ""
    result: ReplyResult | None = None

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.status == "ok" and (self.result is None or isinstance(self.result, TrainFindings)):
            raise ValueError("status ok needs a result")
        if self.status == "error" and self.reason is None:
            raise ValueError("status error needs a reason")
        if self.status == "sequence-low" and self.highest_sequence is None:
            raise ValueError("status sequence-low needs highest_sequence")
        return self
