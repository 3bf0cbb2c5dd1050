"""How bad a drift is, by what the monitors said last."""

from typing import Any

from edge_agent.drift.accuracy.estimated import AccuracyEstimate
from edge_agent.drift.policy.catalogue import ACCURACY
from edge_agent.drift.policy.severity import Severity, severity
from edge_agent.runtime.watch_flag import role_findings
from edge_agent.runtime.watch_rules import WatchRules
from edge_agent.runtime.watch_standing import Standing


def severity_now(rules: WatchRules, at: Standing) -> Severity:
    """How bad it is, by the latest findings."""
    return severity(
        at.policy,
        role_findings(at.findings, rules.monitors),
        worst_loss=rules.worst_loss,
        classes=rules.manifest.classes,
        accuracy=accuracy_now(rules, at),
    )


def accuracy_now(rules: WatchRules, at: Standing) -> AccuracyEstimate | None:
    """The latest estimate; None: nothing estimates it, or nothing yet."""
    for one in rules.served:
        if one.monitor.name == ACCURACY:
            latest: Any = one.monitor.module.latest(one.monitor.params, at.states[ACCURACY])
            return latest if isinstance(latest, AccuracyEstimate) else None
    return None
