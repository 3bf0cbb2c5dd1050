"""From a release and a request to the next release, before anything is signed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from edge_agent.errors import RejectedUpdate
from edge_agent.wire.blobs import BlobReference, make_reference
from edge_agent.wire.codec import encode
from edge_agent.wire.release import (
    MEMBERSHIP_TARGET,
    ROOT_COHORT,
    CohortTarget,
    Membership,
    MembershipTarget,
    WeightsStatement,
    cohort_target,
    encode_membership,
)
from server_bridge.releases.record import ReleaseRecord

CohortName = tuple[str, str]
"""(bundle, cohort)."""


@dataclass(frozen=True, slots=True)
class NewWeights:
    """Encoded weights for a cohort; ``revert`` skips the gateways' comparison with what runs.

    ``adaptation``: whose rounds made them.
    """

    data: bytes
    kind: Literal["normal", "revert"] = "normal"
    adaptation: str | None = None


@dataclass(frozen=True, slots=True)
class ReleaseRequest:
    """What the next release says.

    Attributes:
        membership: every gateway that is not in the root of the default bundle.
        cohorts: weights of the cohorts that change, by (bundle, cohort).
        reason: for people; kept in the record.
        seen: (version, weights digest) that gateways hold and we did not release; what we have
            is released again above them.
    """

    membership: Mapping[str, Membership]
    reason: str
    cohorts: Mapping[CohortName, NewWeights] = field(default_factory=dict)
    seen: Mapping[CohortName, tuple[int, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Draft:
    """The content of the next release.

    Attributes:
        targets: the cohorts role's target files, name to reference and content.
        weights: new weights files by digest.
        highest: the highest weights version by cohort target name.
    """

    members: Mapping[str, Membership]
    cohorts: list[CohortTarget]
    targets: Mapping[str, tuple[BlobReference, bytes]]
    weights: Mapping[str, bytes]
    highest: Mapping[str, int]
    reason: str


def draft(latest: ReleaseRecord, request: ReleaseRequest) -> Draft:
    """The next release's content.

    Weights equal to a cohort's current ones make no new version. A cohort that nobody belongs
    to any more is left out (the root never is); its versions go on counting if it comes back.

    Raises:
        RejectedUpdate: ``unknown_cohort``: somebody belongs to a cohort without weights.
    """
    cohorts = {(one.bundle, one.cohort): one for one in latest.cohorts}
    weights: dict[str, bytes] = {}
    highest = dict(latest.highest)
    _rise_above(request.seen, cohorts, highest)
    for name, new in request.cohorts.items():
        reference, _ = make_reference(new.data)
        current = cohorts.get(name)
        if current is None or current.current.weights != reference:
            cohorts[name] = _next_target(name, new, reference, current or cohorts.get((name[0], ROOT_COHORT)), highest)
            weights[reference.digest] = new.data
    kept = _kept(cohorts, request)
    targets = {cohort_target(one.bundle, one.cohort): encode(one) for one in kept}
    targets[MEMBERSHIP_TARGET] = encode_membership(MembershipTarget(gateways=dict(request.membership)))
    referenced = {name: (make_reference(content)[0], content) for name, content in targets.items()}
    return Draft(dict(request.membership), kept, referenced, weights, highest, request.reason)


def _rise_above(
    seen: Mapping[CohortName, tuple[int, str]], cohorts: dict[CohortName, CohortTarget], highest: dict[str, int]
) -> None:
    for name, (version, _) in seen.items():
        target, target_name = cohorts.get(name), cohort_target(*name)
        highest[target_name] = 1 + max(version, highest.get(target_name, 0))
        if target is not None:
            current = target.current.model_copy(update={"version": highest[target_name]})
            cohorts[name] = target.model_copy(update={"current": current, "candidate": None})


def _next_target(
    name: CohortName, new: NewWeights, reference: BlobReference, base: CohortTarget | None, highest: dict[str, int]
) -> CohortTarget:
    bundle, cohort = name
    target_name = cohort_target(bundle, cohort)
    highest[target_name] = highest.get(target_name, 0) + 1
    statement = WeightsStatement(
        version=highest[target_name],
        weights=reference,
        base_version=base.current.version if base is not None else 0,
        kind=new.kind,
        adaptation=new.adaptation,
    )
    return CohortTarget(bundle=bundle, cohort=cohort, current=statement)


def _kept(cohorts: Mapping[CohortName, CohortTarget], request: ReleaseRequest) -> list[CohortTarget]:
    needed = {(member.bundle, member.cohort) for member in request.membership.values()}
    for bundle, cohort in sorted(needed):
        if (bundle, cohort) not in cohorts:
            raise RejectedUpdate("unknown_cohort", f"gateways belong to {cohort} of bundle {bundle}: it has no weights")
    return [
        cohorts[name] for name in sorted(cohorts) if name in needed or name in request.cohorts or name[1] == ROOT_COHORT
    ]
