"""Readers of messages and files, without a part around them."""

import functools
import random
from pathlib import Path

import zstandard

from edge_agent.ota.claims import read_claims
from edge_agent.wire.blobs import check_chunk, make_chunk_list, make_reference, read_chunk_list
from edge_agent.wire.codec import encode
from edge_agent.wire.errors import WireError
from edge_agent.wire.manifest import TrainableSpec
from edge_agent.wire.release import (
    Membership,
    MembershipTarget,
    decode_membership,
    decode_release_map,
    encode_membership,
)
from edge_agent.wire.tensors import check_weights, decode_weights, encode_weights
from edge_agent.wire.topics import parse_topic
from edge_agent.wire.updates import Coding, decode_update, encode_update
from tests.fuzz.target import Target
from tests.ota.fleet_maps import FleetMaps
from tests.training.tiny_bundle import CLASSES, FEATURES, tiny_weights
from tests.wire.readers import READERS

GOLDEN = Path(__file__).parents[1] / "wire" / "golden"
SPECS = [
    TrainableSpec(name="w", dtype="float32", shape=[FEATURES, CLASSES]),
    TrainableSpec(name="b", dtype="float32", shape=[CLASSES]),
]
_CODINGS: tuple[Coding, ...] = ("fp32", "fp16", "int8")


def targets() -> list[Target]:
    """Every reader of the wire package."""
    found = [Target(f"wire/{reader.name}", _golden(reader.name), reader.read, (WireError,)) for reader in READERS]
    topics = [line.encode() for line in (GOLDEN / "topics.all.bin").read_text().splitlines()]
    found += [
        Target("wire/topic", topics, lambda data: parse_topic(data.decode("utf-8", "surrogateescape")), (WireError,)),
        Target("wire/weights", [encode_weights(tiny_weights(seed)) for seed in (0, 1)], _weights, (WireError,)),
        Target("wire/release-map", [FleetMaps().payload()], _release_map, (WireError,)),
        Target("wire/chunk-list", [encode(make_chunk_list(bytes(range(256)) * 300))], _chunk_list, (WireError,)),
        Target("wire/chunk", [b"a" * 16384, b"b" * 200], _chunk, (WireError,)),
    ]
    members = MembershipTarget(gateways={f"gw{n}": Membership(bundle="b" * 64, cohort="c1") for n in range(5)})
    found.append(Target("wire/membership-packed", [encode_membership(members)], decode_membership, (WireError,)))
    found.append(
        Target("wire/membership-inside", [encode(members)], lambda d: decode_membership(_pack(d)), (WireError,))
    )
    for coding in _CODINGS:
        packed = encode_update(tiny_weights(2), coding)
        raw = zstandard.ZstdDecompressor().decompress(packed)
        read = functools.partial(decode_update, coding=coding, specs=SPECS)
        found.append(Target(f"wire/update-{coding}-packed", [packed], read, (WireError,)))
        found.append(
            Target(f"wire/update-{coding}-inside", [raw], functools.partial(_update_inside, coding), (WireError,))
        )
    return found


def _golden(name: str) -> list[bytes]:
    paths = sorted(GOLDEN.glob(f"{name}.*.bin"))
    assert paths, name
    return [path.read_bytes() for path in paths]


def _pack(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(level=1).compress(data)


def _update_inside(coding: Coding, data: bytes) -> object:
    return decode_update(_pack(data), coding, SPECS)


def _weights(data: bytes) -> None:
    check_weights(decode_weights(data), SPECS)


def _release_map(data: bytes) -> object:
    return read_claims(decode_release_map(data))


def _chunk_list(data: bytes) -> None:
    reference, _ = make_reference(bytes(range(256)) * 300)
    from edge_agent.wire.blobs import sha256_hex

    read_chunk_list(data, reference.model_copy(update={"chunk_list": sha256_hex(data)}))


def _chunk(data: bytes) -> None:
    index = {16384: 0, 200: 1}.get(len(data), random.Random(len(data)).randrange(-2, 4))
    check_chunk(data, index, make_chunk_list(b"a" * 16384 + b"b" * 200, 16384))
