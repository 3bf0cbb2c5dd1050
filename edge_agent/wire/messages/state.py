"""``up/<gw>/state``: retained; what a gateway runs and holds."""

from edge_agent.wire.codec import Count, Digest, Finite, Identifier, Message, Name, WireModel, Word
from edge_agent.wire.messages.overlay import Overlay

STATE_CAP_BYTES = 16 * 1024


class TrustedVersions(WireModel):
    """The highest versions a gateway has ever trusted (its floors)."""

    root: Count = 0
    timestamp: Count = 0
    snapshot: Count = 0
    targets: Count = 0
    release: Count = 0
    map_digest: Digest | None = None


class ClockTrust(WireModel):
    """Whether the gateway's clock may be right: from its time floor on, and less than ten years past it."""

    trusted: bool
    floor_s: Finite


class State(Message):
    """A gateway's running versions and counts.

    ``weights`` is the release that serves; ``overlay``: what lies on it, where the gateway adapts between rounds.
    """

    gateway: Identifier
    boot_id: Name
    agent_version: Name
    bundle: Digest
    weights: Digest
    weights_version: Count
    cohort: Name
    ota_state: Word
    trusted: TrustedVersions
    clock: ClockTrust
    trainable_samples: Count
    training: bool
    served_samples: Count = 0
    outbox_depth: Count = 0
    peak_rss_bytes: Count = 0
    overlay: Overlay | None = None
