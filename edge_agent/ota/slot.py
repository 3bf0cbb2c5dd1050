"""What is served: a bundle, weights, and where they come from."""

from edge_agent.wire.codec import Count, Digest, WireModel
from edge_agent.wire.release import CohortId


class Slot(WireModel):
    """A bundle with weights, released for a cohort at a version."""

    bundle: Digest
    weights: Digest
    cohort: CohortId
    version: Count
