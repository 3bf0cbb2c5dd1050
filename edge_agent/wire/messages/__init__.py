"""Messages, a module a topic row."""

from edge_agent.wire.messages.ack import ACK_CAP_BYTES, GRANT_MAX_CHUNKS, Ack, ChunkGrant
from edge_agent.wire.messages.bridge import BRIDGE_CAP_BYTES, BridgePresence
from edge_agent.wire.messages.command import (
    COMMAND_CAP_BYTES,
    Command,
    Configure,
    Evaluate,
    Identify,
    SignedCommand,
    Train,
    open_command,
    sign_command,
)
from edge_agent.wire.messages.event import (
    EVENT_CAP_BYTES,
    BlobMissingEvent,
    CountsBucket,
    CountsEvent,
    ErrorEvent,
    Event,
    EventBody,
    TrainingEvent,
    UpdateLifecycleEvent,
)
from edge_agent.wire.messages.fault import SensorFaultEvent
from edge_agent.wire.messages.flag import (
    FLAG_CAP_BYTES,
    FlagAccuracy,
    FlagAttribution,
    FlagEvent,
    FlagLabels,
    FlagTest,
)
from edge_agent.wire.messages.overlay import Overlay
from edge_agent.wire.messages.presence import PRESENCE_CAP_BYTES, Presence
from edge_agent.wire.messages.reply import (
    REPLY_CAP_BYTES,
    Done,
    EvaluateResult,
    Reply,
    TrainFindings,
    TrainResult,
    UpdateManifest,
)
from edge_agent.wire.messages.state import STATE_CAP_BYTES, ClockTrust, State, TrustedVersions

__all__ = [
    "ACK_CAP_BYTES",
    "BRIDGE_CAP_BYTES",
    "COMMAND_CAP_BYTES",
    "EVENT_CAP_BYTES",
    "FLAG_CAP_BYTES",
    "GRANT_MAX_CHUNKS",
    "PRESENCE_CAP_BYTES",
    "REPLY_CAP_BYTES",
    "STATE_CAP_BYTES",
    "Ack",
    "BlobMissingEvent",
    "BridgePresence",
    "ChunkGrant",
    "ClockTrust",
    "Command",
    "Configure",
    "CountsBucket",
    "CountsEvent",
    "Done",
    "ErrorEvent",
    "Evaluate",
    "EvaluateResult",
    "Event",
    "EventBody",
    "FlagAccuracy",
    "FlagAttribution",
    "FlagEvent",
    "FlagLabels",
    "FlagTest",
    "Identify",
    "Overlay",
    "Presence",
    "Reply",
    "SensorFaultEvent",
    "SignedCommand",
    "State",
    "Train",
    "TrainFindings",
    "TrainResult",
    "TrainingEvent",
    "TrustedVersions",
    "UpdateLifecycleEvent",
    "UpdateManifest",
    "open_command",
    "sign_command",
]
