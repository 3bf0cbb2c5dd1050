"""A flag with its evidence: what fired, on what, since when, and how sure that is."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edge_agent.drift.accuracy.estimated import AccuracyEstimate
from edge_agent.drift.finding import Attribution, Finding
from edge_agent.drift.policy.catalogue import Monitor
from edge_agent.drift.policy.labels import LabelFacts
from edge_agent.drift.policy.severity import Severity
from edge_agent.drift.policy.verdict import Role
from edge_agent.samples.record import LabelledRow
from edge_agent.serving.server import Prepared
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.codec import NAME_CHARS
from edge_agent.wire.messages import FlagAccuracy, FlagAttribution, FlagEvent, FlagLabels, FlagTest, Overlay
from edge_agent.wire.messages.flag import ATTRIBUTIONS_CAP, EVIDENCE_CAP_ITEMS, TESTS_CAP, fitted

SAMPLES_TOLD = 16
_LARGEST = 1e300


@dataclass(frozen=True, slots=True)
class Drifted:
    """Where a drift began.

    Attributes:
        first: id of the first drifted sample.
        time_s: when it was measured.
        samples: ids of some that were judged, the first drifted one first.
        numbers: further figures by name.
    """

    first: str
    time_s: float
    samples: Sequence[str]
    numbers: dict[str, float]


@dataclass(frozen=True, slots=True)
class Context:
    """What else is known when a flag is raised.

    Attributes:
        findings: the latest of every monitor, by its name.
        accuracy: None: nothing estimates it.
        trainable: samples from the first drifted one on.
    """

    findings: Mapping[str, Finding]
    severity: Severity
    shift: str
    facts: LabelFacts
    accuracy: AccuracyEstimate | None
    trainable: int


def flag_id(gateway: str, monitor: str, epoch: str, firing: int) -> str:
    """The same firing has the same id for ever."""
    return sha256_hex(f"{gateway}|{monitor}|{epoch}|{firing}".encode())


def made_flag(
    identity: str, firing: int, monitor: Monitor, finding: Finding, drifted: Drifted, context: Context, active: Prepared
) -> FlagEvent:
    """The flag, cut to its size.

    Args:
        identity: its id.
        firing: number of the flag.
        monitor: whose finding raises it.
    """
    others = [name for name in context.findings if name != monitor.name]
    tests = [_test(name, context.findings[name]) for name in (monitor.name, *others)]
    quantities = [one for name in (monitor.name, *others) for one in context.findings[name].attributions]
    flag = FlagEvent(
        flag_id=identity,
        monitor=monitor.name,
        firing=firing,
        bundle=active.bundle,
        weights=active.weights,
        weights_version=active.version,
        cohort=active.cohort,
        first_drifted_sample=drifted.first,
        first_drifted_time_s=drifted.time_s,
        statistic=_finite(finding.statistic),
        threshold=_finite(finding.threshold),
        evidence=dict(list(_numbers(monitor, drifted).items())[:EVIDENCE_CAP_ITEMS]),
        trainable_samples=context.trainable,
        severity=context.severity.value,
        severity_by=context.severity.measured_by or None,
        shift=context.shift,
        tests=tests[:TESTS_CAP],
        attributions=[_attribution(one) for one in quantities if _is_told(one)][:ATTRIBUTIONS_CAP],
        samples=list(drifted.samples[:SAMPLES_TOLD]),
        labels=_labels(context.facts),
        accuracy=None if context.accuracy is None else _accuracy(context.accuracy),
        overlay=told_overlay(active),
    )
    return fitted(flag)


def told_overlay(active: Prepared) -> Overlay | None:
    """What lies on the release, as the wire says it."""
    laid = active.overlay
    return None if laid is None else Overlay(digest=laid.digest, batches=laid.batches)


def labelled_drifted(rows: Sequence[LabelledRow], began: int | None, numbers: dict[str, float]) -> Drifted:
    """Where a drift began that losses showed.

    Args:
        rows: in the order in which their labels came, the latest batch last.
        began: how many of them, by the time at which they were measured, lie after the change; None: all of the last.
    """
    ordered = sorted(rows, key=lambda row: row.time_s)
    after = ordered[-(began or len(ordered)) :]
    numbers["last_time_s"] = float(ordered[-1].time_s)
    return Drifted(after[0].id, after[0].time_s, [row.id for row in after[:SAMPLES_TOLD]], numbers)


def role_findings(findings: Mapping[str, Finding], monitors: Sequence[Monitor]) -> dict[Role, Finding]:
    """Each role's latest."""
    return {one.role: findings[one.name] for one in monitors if one.role is not None and one.name in findings}


def _test(name: str, finding: Finding) -> FlagTest:
    return FlagTest(
        monitor=name,
        statistic=_finite(finding.statistic),
        threshold=_finite(finding.threshold),
        warning_threshold=_finite(finding.warning_threshold),
        rows=finding.rows,
    )


def _numbers(monitor: Monitor, drifted: Drifted) -> dict[str, float]:
    told = {"batch_size": float(monitor.batch_size), **drifted.numbers}
    return {name: value for name, value in told.items() if math.isfinite(value)}


def _attribution(one: Attribution) -> FlagAttribution:
    return FlagAttribution(
        name=_named(one.name),
        before=one.before,
        now=one.now,
        unit=one.unit[:64],
        weight=one.weight,
        measure=one.measure,
    )


def _named(text: str) -> str:
    """As the wire takes names."""
    return "".join(sign if sign >= " " and sign != "\x7f" else " " for sign in text[:NAME_CHARS]) or "-"


def _is_told(one: Attribution) -> bool:
    return all(math.isfinite(value) for value in (one.before, one.now, one.weight))


def _labels(facts: LabelFacts) -> FlagLabels:
    return FlagLabels(
        served=facts.served,
        labelled=facts.labelled,
        delay_median_s=facts.delay_median_s,
        delay_p90_s=facts.delay_p90_s,
        bias=facts.bias,
    )


def _accuracy(estimate: AccuracyEstimate) -> FlagAccuracy:
    if estimate.refused:
        return FlagAccuracy(quantity=estimate.quantity, rows=estimate.rows, refused=estimate.reason or estimate.refusal)
    return FlagAccuracy(
        quantity=estimate.quantity,
        value=_finite(estimate.value),
        low=_finite(estimate.low),
        high=_finite(estimate.high),
        expected=_finite(estimate.expected),
        rows=estimate.rows,
    )


def _finite(value: float) -> float:
    """Infinite ones as the largest that the wire takes; NaN as 0."""
    return 0.0 if math.isnan(value) else max(-_LARGEST, min(_LARGEST, float(value)))
