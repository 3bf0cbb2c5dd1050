"""A gateway's side of commands and uploads, scripted."""

from collections.abc import Mapping

import numpy as np

from edge_agent.link.events import Received
from edge_agent.wire.blobs import BlobReference, ChunkBytes, chunks, make_chunk_list, make_reference, sha256_hex
from edge_agent.wire.codec import encode
from edge_agent.wire.messages import (
    Command,
    Presence,
    Reply,
    Train,
    TrainResult,
    UpdateManifest,
)
from edge_agent.wire.messages.reply import MetricValue
from tests.fleet.desk import BUNDLE, TOPICS

CHUNK_BYTES: ChunkBytes = 16384


def train(base: BlobReference | None = None, *, server_round: int = 1) -> Train:
    return Train(
        adaptation="a1",
        round=server_round,
        bundle=BUNDLE,
        base=base or make_reference(b"base")[0],
        cohort="root",
        training_graph="sgd",
        learning_rate=0.1,
        epochs=1,
        batch_size=8,
        min_samples=1,
        max_samples=100,
        seed=0,
    )


def presence(gateway: str = "gw1", boot_id: str = "boot1", connection: int = 1, *, online: bool = True) -> Received:
    message = Presence(gateway=gateway, online=online, boot_id=boot_id, connection=connection)
    return Received(TOPICS.presence(gateway), encode(message), True)


def update_of(size_bytes: int, seed: int = 0) -> bytes:
    return np.random.default_rng(seed).bytes(size_bytes)


def manifest(action: Train, data: bytes) -> UpdateManifest:
    return UpdateManifest(
        coding=action.coding,
        base=action.base.digest,
        digest=sha256_hex(data),
        chunks=make_chunk_list(data, CHUNK_BYTES),
    )


def answer(
    command: Command,
    update: UpdateManifest | None = None,
    metrics: Mapping[str, MetricValue] | None = None,
    **fields: object,
) -> Reply:
    action = command.action
    result = None
    if update is not None and isinstance(action, Train):
        measured = dict(metrics or {"num-examples": 10})
        result = TrainResult(round=action.round, cohort=action.cohort, update=update, metrics=measured)
    content = {
        "gateway": command.gateway,
        "boot_id": command.boot_id,
        "command_id": command.command_id,
        "status": "ok",
        "result": result,
        **fields,
    }
    return Reply.model_validate(content)


def received(reply: Reply) -> Received:
    return Received(TOPICS.reply(reply.gateway), encode(reply), False)


def chunk(gateway: str, data: bytes, index: int, digest: str | None = None) -> Received:
    payload = list(chunks(data, CHUNK_BYTES))[index]
    return Received(TOPICS.upload_chunk(gateway, digest or sha256_hex(data), index), payload, False)
