"""What a gateway made of its release between rounds: weights that no signature names (ADR 0018)."""

from edge_agent.wire.codec import Count, Digest, WireModel


class Overlay(WireModel):
    """Weights adapted on the gateway that lie on the release it serves.

    ``digest``: of release and overlay together, as weights are named. ``batches``: of unlabelled samples that made it.
    """

    digest: Digest
    batches: Count
