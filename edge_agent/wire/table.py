"""The topic table as data: who writes a row, whether it is retained, which message it carries."""

from dataclasses import dataclass
from typing import Literal

from edge_agent.wire.codec import Message
from edge_agent.wire.messages.ack import ACK_CAP_BYTES, Ack
from edge_agent.wire.messages.bridge import BRIDGE_CAP_BYTES, BridgePresence
from edge_agent.wire.messages.command import ENVELOPE_CAP_BYTES, SignedCommand
from edge_agent.wire.messages.event import EVENT_CAP_BYTES, Event
from edge_agent.wire.messages.presence import PRESENCE_CAP_BYTES, Presence
from edge_agent.wire.messages.reply import REPLY_CAP_BYTES, Reply
from edge_agent.wire.messages.state import STATE_CAP_BYTES, State
from edge_agent.wire.release import RELEASE_MAP_CAP_BYTES, ReleaseMap
from edge_agent.wire.topics import TopicKind

CHUNK_CAP_BYTES = 128 * 1024


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A row of the topic table.

    Attributes:
        topic: below ``clma/1/<fleet>/``, with its variable levels in braces.
        writer: who may write it; ``will`` says that the writer's MQTT will does too.
        message: the JSON message; None for the raw bytes of a chunk.
        cap_bytes: larger payloads are refused before they are parsed.
    """

    kind: TopicKind
    topic: str
    retained: bool
    writer: Literal["gateway", "bridge"]
    will: bool
    message: type[Message] | None
    cap_bytes: int
    purpose: str


TOPIC_TABLE: tuple[TopicRow, ...] = (
    TopicRow(
        TopicKind.PRESENCE,
        "up/{gateway}/presence",
        True,
        "gateway",
        True,
        Presence,
        PRESENCE_CAP_BYTES,
        "online or offline, boot id, connection number; repeated every 10 min",
    ),
    TopicRow(
        TopicKind.STATE,
        "up/{gateway}/state",
        True,
        "gateway",
        False,
        State,
        STATE_CAP_BYTES,
        "what a gateway runs, trusts and holds",
    ),
    TopicRow(
        TopicKind.EVENT,
        "up/{gateway}/event",
        False,
        "gateway",
        False,
        Event,
        EVENT_CAP_BYTES,
        "outbox messages: flags, update lifecycle, counts, training, missing blobs, errors",
    ),
    TopicRow(
        TopicKind.REPLY,
        "up/{gateway}/reply",
        False,
        "gateway",
        False,
        Reply,
        REPLY_CAP_BYTES,
        "replies to commands, and the manifest of an update",
    ),
    TopicRow(
        TopicKind.UPLOAD_CHUNK,
        "up/{gateway}/blob/{digest}/{index}",
        False,
        "gateway",
        False,
        None,
        CHUNK_CAP_BYTES,
        "one chunk of an update, only when it was granted",
    ),
    TopicRow(
        TopicKind.COMMAND,
        "down/{gateway}/command",
        False,
        "bridge",
        False,
        SignedCommand,
        ENVELOPE_CAP_BYTES,
        "train, evaluate, configure, identify; signed; refused with the retain flag",
    ),
    TopicRow(
        TopicKind.ACK,
        "down/{gateway}/ack",
        False,
        "bridge",
        False,
        Ack,
        ACK_CAP_BYTES,
        "outbox sequences committed, and chunk grants",
    ),
    TopicRow(
        TopicKind.CHUNK,
        "all/blob/{digest}/{index}",
        True,
        "bridge",
        False,
        None,
        CHUNK_CAP_BYTES,
        "one chunk of weights, a bundle file or a target file; an empty payload means withdrawn",
    ),
    TopicRow(
        TopicKind.RELEASE,
        "all/release",
        True,
        "bridge",
        False,
        ReleaseMap,
        RELEASE_MAP_CAP_BYTES,
        "TUF metadata files by name",
    ),
    TopicRow(
        TopicKind.BRIDGE,
        "all/bridge",
        True,
        "bridge",
        True,
        BridgePresence,
        BRIDGE_CAP_BYTES,
        "the bridge's boot id, online or offline",
    ),
)
