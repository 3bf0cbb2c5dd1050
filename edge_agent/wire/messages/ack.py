"""``down/<gw>/ack``: outbox sequences committed; chunk grants."""

from typing import Annotated

from pydantic import Field

from edge_agent.wire.codec import Count, Digest, Items, Message, Name, SequenceRange, WireModel

ACK_CAP_BYTES = 64 * 1024
GRANT_MAX_CHUNKS = 8


class ChunkGrant(WireModel):
    """The bridge's permission to send chunks ``indices`` of the update ``digest``.

    An empty ``indices`` says that the bridge has the whole blob: it may be forgotten.
    """

    command_id: Name
    digest: Digest
    indices: Annotated[Items[Count], Field(max_length=GRANT_MAX_CHUNKS)]


class Ack(Message):
    """What the bridge has committed of one outbox epoch, and grants.

    ``committed`` are ranges of sequences, both ends included.
    """

    bridge_boot_id: Name
    epoch: Name | None = None
    committed: Annotated[Items[SequenceRange], Field(max_length=512)] = []
    grants: Annotated[Items[ChunkGrant], Field(max_length=16)] = []
