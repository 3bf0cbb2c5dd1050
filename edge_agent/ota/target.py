"""Which weights a verified release means for one gateway."""

from dataclasses import dataclass

from edge_agent.ota.slot import Slot
from edge_agent.wire.blobs import BlobReference
from edge_agent.wire.release import (
    ROOT_COHORT,
    CohortTarget,
    FleetTarget,
    Membership,
    MembershipTarget,
    WeightsStatement,
)


@dataclass(frozen=True, slots=True)
class Target:
    """What a gateway is to serve, where its weights are, and the adaptation that made them."""

    slot: Slot
    weights: BlobReference
    kind: str
    adaptation: str | None = None


def place_of(gateway: str, membership: MembershipTarget, fleet: FleetTarget) -> Membership:
    """Where a gateway belongs; one that is not listed has the default bundle and the root cohort."""
    return membership.gateways.get(gateway) or Membership(bundle=fleet.default_bundle, cohort=ROOT_COHORT)


def statement_for(gateway: str, cohort: CohortTarget) -> WeightsStatement:
    """The candidate if the gateway is listed for it, else what is current."""
    candidate = cohort.candidate
    return candidate if candidate is not None and gateway in candidate.eligible else cohort.current


def target_of(gateway: str, cohort: CohortTarget) -> Target:
    """What a cohort's target means for a gateway in it."""
    statement = statement_for(gateway, cohort)
    slot = Slot(bundle=cohort.bundle, weights=statement.weights.digest, cohort=cohort.cohort, version=statement.version)
    return Target(slot, statement.weights, statement.kind, statement.adaptation)
