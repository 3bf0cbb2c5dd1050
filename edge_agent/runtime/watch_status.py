"""The drift monitors' standing as the status file shows it."""

import math
from collections.abc import Sequence

from edge_agent.drift.accuracy.estimated import AccuracyEstimate
from edge_agent.drift.finding import Finding
from edge_agent.drift.policy.catalogue import ACCURACY, Monitor
from edge_agent.drift.policy.labels import label_words, standing
from edge_agent.drift.policy.severity import kind_of_shift
from edge_agent.drift.policy.table import Verdict
from edge_agent.drift.policy.verdict import Labels, Role, level_of, may_flag
from edge_agent.runtime.drift_status import (
    AccuracyStatus,
    Changed,
    DriftStatus,
    FaultStatus,
    LabelStatus,
    MonitorStatus,
)
from edge_agent.runtime.watch import DriftWatch
from edge_agent.runtime.watch_flag import role_findings
from edge_agent.runtime.watch_rules import WatchRules
from edge_agent.runtime.watch_severity import accuracy_now, severity_now
from edge_agent.runtime.watch_standing import Standing
from edge_agent.wire.messages import FlagEvent, SensorFaultEvent


def drift_status(watch: DriftWatch, faults: Sequence[SensorFaultEvent] = ()) -> DriftStatus:
    """What the monitors say now; any thread.

    Args:
        faults: of the sensors, those that last.
    """
    at, rules = watch.standing, watch.rules
    severe = severity_now(rules, at)
    flag = None if at.place.flag is None else FlagEvent.model_validate_json(at.place.flag)
    return DriftStatus(
        verdict=at.policy.verdict.value,
        why=why(rules, at),
        rule=rules.labelled.monitor.name,
        severity=severe.value,
        severity_of=severe.measured_by,
        shift=kind_of_shift(at.policy, role_findings(at.findings, rules.monitors)),
        flags=at.policy.flags,
        open_flag=None if flag is None else flag.flag_id,
        first_drifted_sample=at.place.drifted_from,
        cooling=at.policy.cooling,
        unjudged_batches=watch.unjudged_batches,
        monitors=[_monitor(watch, rules, at, one) for one in rules.monitors],
        labels=_labels(rules, at),
        accuracy=_accuracy(rules, at),
        faults=[FaultStatus(feature=one.sensor, fault=one.fault, detail=_fault_words(one)) for one in faults],
    )


def _fault_words(fault: SensorFaultEvent) -> str:
    value = "" if fault.value is None else f"at {fault.value:.6g}{' ' if fault.unit else ''}{fault.unit}"
    return "; ".join(part for part in (value, fault.detail, f"since {fault.since_s:.0f} s") if part)


def why(rules: WatchRules, at: Standing) -> str:
    """The verdict's reason in words; "" where it is none."""
    good_for = standing(rules.policy, at.facts)
    parts = []
    for one in rules.monitors:
        finding = at.findings.get(one.name)
        role = one.role or Role.ACCURACY
        level = at.policy.level(role)
        if finding is None or level is Verdict.NONE:
            continue
        now = level_of(finding)
        calm = "" if now is not Verdict.NONE else ", calm since"
        words = f"{one.name} {level} ({finding.statistic:.4g}, threshold {finding.threshold:.4g}{calm})"
        if level is Verdict.ALARM and not may_flag(rules.policy, role, labels=good_for):
            words += f", only warns: {_reason(rules, role, good_for)}"
        parts.append(words)
    if parts and at.policy.cooling:
        parts.append(f"no new flag for {at.policy.cooling} batches")
    return "; ".join(parts)


def _reason(rules: WatchRules, role: Role, good_for: Labels) -> str:
    if role is Role.LABELLED:
        return "labelling is biased"
    if role is Role.ACCURACY:
        return "it is an estimate"
    if rules.policy.label_free == "never":
        return "its reference was too short to promise few false alarms" if rules.unproven else "the settings say so"
    return "labels come, and the loss decides" if good_for is Labels.DECIDE else "the loss decides"


def _monitor(watch: DriftWatch, rules: WatchRules, at: Standing, one: Monitor) -> MonitorStatus:
    finding = at.findings.get(one.name)
    role = one.role or Role.ACCURACY
    return MonitorStatus(
        name=one.name,
        sees="labelled" if one.role is Role.LABELLED else "served",
        only_task=None if one.role is Role.LABELLED else _only_task(rules),
        level=at.policy.level(role).value,
        flags=may_flag(rules.policy, role, labels=standing(rules.policy, at.facts)),
        batches=at.batches.get(one.name, 0),
        batch_size=one.batch_size,
        waiting=watch.waiting.get(one.name, 0),
        statistic=None if finding is None else _finite(finding.statistic),
        threshold=None if finding is None else _finite(finding.threshold),
        warning_threshold=None if finding is None else _finite(finding.warning_threshold),
        false_alarm_rate=one.rate,
        shift="unknown" if finding is None else finding.shift,
        attributions=[] if finding is None else _changed(finding),
        problem=watch.problems.get(one.name, ""),
    )


def _only_task(rules: WatchRules) -> str | None:
    """What monitors without labels are calibrated for, where other tasks' samples come too."""
    tasks = rules.manifest.tasks
    every = rules.inputs_alone or rules.answers is not None
    return tasks[0].name if len(tasks) > 1 and not every else None


def _changed(finding: Finding) -> list[Changed]:
    return [
        Changed(name=one.name, before=one.before, now=one.now, unit=one.unit, weight=one.weight)
        for one in finding.attributions
        if math.isfinite(one.before) and math.isfinite(one.now) and math.isfinite(one.weight)
    ]


def _labels(rules: WatchRules, at: Standing) -> LabelStatus:
    facts = at.facts
    return LabelStatus(
        labelled=facts.labelled,
        served=facts.served,
        share=facts.share,
        delay_median_s=facts.delay_median_s,
        delay_p90_s=facts.delay_p90_s,
        biased=bool(facts.bias) if facts.served else None,
        fresh=standing(rules.policy, facts) is Labels.DECIDE,
        says=label_words(rules.policy, facts),
    )


def _accuracy(rules: WatchRules, at: Standing) -> AccuracyStatus | None:
    """Of other weights than the bundle's own nothing is known: their mistakes are others."""
    if all(one.monitor.name != ACCURACY for one in rules.served):
        return None
    if at.place.overlay:
        return AccuracyStatus(refused="an overlay serves: what it gets wrong is not known")
    if at.place.weights and at.place.weights != rules.own_weights:
        return AccuracyStatus(refused="these weights are not the bundle's own: what they get wrong is not known")
    estimate = accuracy_now(rules, at)
    return AccuracyStatus(refused="no full window yet") if estimate is None else _estimated(estimate)


def _estimated(estimate: AccuracyEstimate) -> AccuracyStatus:
    if estimate.refused:
        reason = estimate.reason or estimate.refusal
        return AccuracyStatus(reference=_finite(estimate.expected), rows=estimate.rows, refused=reason)
    return AccuracyStatus(
        estimate=_finite(estimate.value),
        low=_finite(estimate.low),
        high=_finite(estimate.high),
        reference=_finite(estimate.expected),
        rows=estimate.rows,
    )


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
