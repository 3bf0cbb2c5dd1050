"""``up/<gw>/reply``: answers to commands, and the manifest of an update."""

from typing import Annotated, Literal

from pydantic import Field

from edge_agent.wire.blobs import ChunkList
from edge_agent.wire.codec import Count, Digest, Finite, Identifier, Message, Name, Text, WireModel, Word

REPLY_CAP_BYTES = 256 * 1024

MetricValue = int | Finite | list[int] | list[Finite]
Metrics = Annotated[dict[Name, MetricValue], Field(max_length=64)]


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


class EvaluateResult(WireModel):
    """Counts, loss and accuracy of named weights; never samples."""

    kind: Literal["evaluate"] = "evaluate"
    weights: Digest
    metrics: Metrics


class Done(WireModel):
    """A configure or identify command was carried out."""

    kind: Literal["done"] = "done"


ReplyResult = Annotated[TrainResult | EvaluateResult | Done, Field(discriminator="kind")]
ReplyStatus = Literal["ok", "accepted", "error", "stale-boot", "sequence-low"]


class Reply(Message):
    """Answers one command.

    ``status``: ``accepted`` when work has begun and a final reply follows; ``stale-boot``
    when the command named another boot id (``boot_id`` here is the right one);
    ``sequence-low`` with ``highest_sequence``; ``error`` with ``reason`` and ``detail``.
    """

    gateway: Identifier
    boot_id: Name
    command_id: Name
    status: ReplyStatus
    highest_sequence: Count | None = None
    reason: Word | None = None
    detail: Text = ""
    result: ReplyResult | None = None
