"""Every function that reads bytes from outside, by name, with what a valid payload of it may hold."""

from collections.abc import Callable
from dataclasses import dataclass

from edge_agent.wire.blobs import CHUNK_LIST_CAP_BYTES, ChunkList
from edge_agent.wire.codec import Message, decode
from edge_agent.wire.manifest import Manifest, read_manifest
from edge_agent.wire.messages import COMMAND_CAP_BYTES, Command
from edge_agent.wire.provision import ProvisionedFloors, read_floors
from edge_agent.wire.release import (
    TARGET_CAP_BYTES,
    BundleTarget,
    CohortTarget,
    FleetTarget,
    MembershipTarget,
)
from edge_agent.wire.table import TOPIC_TABLE


@dataclass(frozen=True)
class Reader:
    """A model and how its bytes are read."""

    model: type[Message]
    read: Callable[[bytes], Message]
    cap_bytes: int

    @property
    def name(self) -> str:
        return self.model.__name__


def _by_decode(model: type[Message], cap_bytes: int) -> Reader:
    return Reader(model, lambda payload: decode(model, payload, cap_bytes=cap_bytes), cap_bytes)


READERS: tuple[Reader, ...] = (
    *(_by_decode(row.message, row.cap_bytes) for row in TOPIC_TABLE if row.message is not None),
    _by_decode(Command, COMMAND_CAP_BYTES),
    _by_decode(ChunkList, CHUNK_LIST_CAP_BYTES),
    _by_decode(FleetTarget, TARGET_CAP_BYTES),
    _by_decode(BundleTarget, TARGET_CAP_BYTES),
    _by_decode(MembershipTarget, TARGET_CAP_BYTES),
    _by_decode(CohortTarget, TARGET_CAP_BYTES),
    Reader(Manifest, read_manifest, 1024 * 1024),
    Reader(ProvisionedFloors, read_floors, 16 * 1024),
)
READER_NAMES = [reader.name for reader in READERS]
