"""How golden files are read and described: ``<kind>.<case>.bin`` beside ``<kind>.<case>.json``."""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from edge_agent.wire.manifest import TrainableSpec
from edge_agent.wire.release import decode_membership, decode_release_map
from edge_agent.wire.tensors import decode_weights
from edge_agent.wire.topics import parse_topic
from edge_agent.wire.updates import decode_update
from tests.wire.readers import READERS, Reader

FOLDER = Path(__file__).parent / "golden"
SPECS = [
    TrainableSpec(name="conv.w", dtype="float32", shape=[2, 3]),
    TrainableSpec(name="gain", dtype="float32", shape=[]),
]


def describe_topic(payload: bytes) -> object:
    """One topic a line."""
    topics = [parse_topic(line) for line in payload.decode().splitlines()]
    return [
        {"fleet": one.fleet, "kind": one.kind.value, "gateway": one.gateway, "digest": one.digest, "index": one.index}
        for one in topics
    ]


def describe_tensors(tensors: dict[str, NDArray[Any]]) -> object:
    return {
        name: {"shape": list(tensor.shape), "values": tensor.reshape(-1).tolist()} for name, tensor in tensors.items()
    }


def _describe_message(reader: Reader) -> Callable[[bytes], object]:
    return lambda payload: reader.read(payload).model_dump(mode="json", by_alias=True)


def _describe_map(payload: bytes) -> object:
    return {name: base64.b64encode(content).decode() for name, content in decode_release_map(payload).items()}


DESCRIBE: dict[str, Callable[[bytes], object]] = {
    **{reader.name: _describe_message(reader) for reader in READERS},
    "topics": describe_topic,
    "weights": lambda payload: describe_tensors(decode_weights(payload)),
    "update-fp32": lambda payload: describe_tensors(decode_update(payload, "fp32", SPECS)),
    "update-fp16": lambda payload: describe_tensors(decode_update(payload, "fp16", SPECS)),
    "update-int8": lambda payload: describe_tensors(decode_update(payload, "int8", SPECS)),
    "release-map": _describe_map,
    "membership": lambda payload: decode_membership(payload).model_dump(mode="json", by_alias=True),
}
