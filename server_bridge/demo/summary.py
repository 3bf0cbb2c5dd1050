"""``report.json``: the run in figures; pure."""

from typing import TypedDict

from server_bridge.demo.facts import CLMA, ArmFacts, DemoFacts, GatewayFacts, Tally
from server_bridge.demo.verdict import (
    Verdict,
    drifted_of,
    false_flags,
    families_separated,
    mean_accuracy,
    refused,
    stationary_of,
)

MB = 1e6


class AccuracyJson(TypedDict):
    """The gateway's own counts on holdout windows, as shares."""

    before: float | None
    drifted: float | None
    final: float | None


class GatewayJson(TypedDict):
    """One gateway of the CLMA arm."""

    id: str
    family: str
    flagged_s: float | None
    cohort: str
    model_version: int
    accuracy: AccuracyJson
    subject: int
    remounted_s: float | None
    activated_s: float | None
    peak_rss_mb: float


class ArmJson(TypedDict):
    """Mean accuracies of one arm."""

    stationary_final: float
    drifted_final: float
    rounds: int
    wall_s: float
    phases_s: dict[str, float]


class BytesJson(TypedDict):
    """Payload bytes over both arms: sent by the gateways; published by the bridge, counted once."""

    up: int
    down_published: int


class CriterionJson(TypedDict):
    """One criterion and whether it holds."""

    name: str
    holds: bool
    judged: bool
    detail: str


class BadReleaseJson(TypedDict):
    """A hostile release map and the reasons given for refusing it."""

    title: str
    version: int
    map_digest: str
    refused_by: dict[str, str]


class ReportJson(TypedDict):
    """The whole of ``report.json``."""

    gateways: list[GatewayJson]
    false_flags: list[str]
    families_separated: bool
    arms: dict[str, ArmJson]
    refused_releases: int
    wall_s: float
    bytes: BytesJson
    agent_rss_mb: float
    ok: bool
    criteria: list[CriterionJson]
    bad_releases: list[BadReleaseJson]
    seed: int
    broker: str
    setup_s: float
    notes: list[str]


def summarise(facts: DemoFacts, verdict: Verdict) -> ReportJson:
    """The facts and the verdict as JSON-ready values."""
    arm = facts.arms[CLMA]
    return {
        "gateways": [_gateway(gateway) for gateway in arm.gateways],
        "false_flags": false_flags(arm),
        "families_separated": families_separated(arm),
        "arms": {name: _arm(each) for name, each in facts.arms.items()},
        "refused_releases": refused(facts),
        "wall_s": round(facts.wall_s, 1),
        "bytes": {
            "up": sum(each.bytes_up for each in facts.arms.values()),
            "down_published": sum(each.bytes_down_published for each in facts.arms.values()),
        },
        "agent_rss_mb": peak_rss_mb(facts),
        "ok": verdict.holds,
        "criteria": [
            {"name": c.name, "holds": c.holds, "judged": c.judged, "detail": c.detail} for c in verdict.criteria
        ],
        "bad_releases": [
            {
                "title": bad.title,
                "version": bad.version,
                "map_digest": bad.map_digest,
                "refused_by": {refusal.gateway: refusal.reason for refusal in bad.refusals},
            }
            for bad in facts.bad_releases
        ],
        "seed": facts.seed,
        "broker": facts.broker,
        "setup_s": round(facts.setup_s, 1),
        "notes": list(facts.notes),
    }


def peak_rss_mb(facts: DemoFacts) -> float:
    """The largest resident set of any agent process, 10^6 bytes."""
    peaks = [gateway.peak_rss_bytes for arm in facts.arms.values() for gateway in arm.gateways]
    return round(max(peaks, default=0) / MB, 1)


def _gateway(gateway: GatewayFacts) -> GatewayJson:
    return {
        "id": gateway.id,
        "family": str(gateway.family),
        "flagged_s": _rounded(gateway.flagged_s, 2),
        "cohort": gateway.cohort,
        "model_version": gateway.version,
        "accuracy": {
            "before": _share(gateway.before),
            "drifted": _share(gateway.drifted),
            "final": _share(gateway.final),
        },
        "subject": gateway.subject,
        "remounted_s": _rounded(gateway.remount_s, 2) if gateway.drifts else None,
        "activated_s": _rounded(gateway.activated_s, 2),
        "peak_rss_mb": round(gateway.peak_rss_bytes / MB, 1),
    }


def _arm(arm: ArmFacts) -> ArmJson:
    return {
        "stationary_final": round(mean_accuracy(g.final for g in stationary_of(arm)), 4),
        "drifted_final": round(mean_accuracy(g.final for g in drifted_of(arm)), 4),
        "rounds": len(arm.rounds),
        "wall_s": round(arm.wall_s, 1),
        "phases_s": {name: round(seconds, 1) for name, seconds in arm.phases},
    }


def _share(tally: Tally) -> float | None:
    return _rounded(tally.accuracy, 4)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
