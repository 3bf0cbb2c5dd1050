"""How bad it is, and what seems to have changed, from the latest findings."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from edge_agent.drift.accuracy.estimated import AccuracyEstimate
from edge_agent.drift.finding import Finding, ShiftKind
from edge_agent.drift.policy.table import Verdict
from edge_agent.drift.policy.verdict import PolicyState, Role

LOSS = "loss"
"""The attribution by which a labelled monitor says the mean loss before and since the change."""

SLIGHT = 1e-3
"""Of a guess's loss, or of the loss before: what a loss rises by less than this is no drift that anybody is served."""

Measure = Literal["loss", "accuracy", "statistic", ""]


@dataclass(frozen=True, slots=True)
class Severity:
    """0 to 1, and what it is measured by.

    Args:
        value: ``loss``: the share of the way from the loss before to that of a guess that the loss has gone;
            ``accuracy``: the same of the estimated accuracy (loss), from the reference's to that of a guess;
            ``statistic``: 1 - threshold / statistic, so a half at twice the threshold. The first that can be told
            stands.
        measured_by: which of them.
    """

    value: float = 0.0
    measured_by: Measure = ""


def severity(
    state: PolicyState,
    findings: Mapping[Role, Finding],
    *,
    worst_loss: float | None,
    classes: int | None,
    accuracy: AccuracyEstimate | None,
) -> Severity:
    """How bad it is; 0 where the verdict is none.

    Args:
        findings: each role's latest.
        worst_loss: a guess's loss a sample (ln of the classes); None: not known.
        classes: of a classification; None: a regression.
        accuracy: the latest estimate.
    """
    if state.verdict is Verdict.NONE:
        return Severity()
    labelled = findings.get(Role.LABELLED)
    if labelled is not None and state.level(Role.LABELLED) is not Verdict.NONE and worst_loss is not None:
        for one in labelled.attributions:
            if one.name == LOSS and worst_loss > one.before:
                return Severity(_share((one.now - one.before) / (worst_loss - one.before)), "loss")
    if accuracy is not None and not accuracy.refused and (worst := _worst(accuracy, worst_loss, classes)) is not None:
        lost = (accuracy.value - accuracy.expected) / (worst - accuracy.expected)
        return Severity(_share(lost), "accuracy")
    return Severity(max((_beyond(one) for one in findings.values()), default=0.0), "statistic")


def mattering(finding: Finding, worst_loss: float | None) -> Finding:
    """A finding of the losses' level, which warns and does not alarm where the loss has hardly risen.

    A test of a nearly perfect model sees losses of 1e-6 become 1e-4 at once and for sure; nobody is served worse.

    Args:
        finding: with the loss before and now, if it tells a change.
        worst_loss: a guess's loss a sample; None: not known.
    """
    for one in finding.attributions:
        if one.name == LOSS and finding.alarm and one.now - one.before < SLIGHT * max(one.before, worst_loss or 0.0):
            return finding._replace(statistic=finding.threshold)
    return finding


def kind_of_shift(state: PolicyState, findings: Mapping[Role, Finding]) -> ShiftKind:
    """What seems to have changed.

    What the label-free monitor says while it warns; else, with a loss that is worse, the meaning of the inputs where
    that monitor watches them and is quiet (``concept``), and no more than the loss where nobody watches them.
    """
    if state.level(Role.LABEL_FREE) is not Verdict.NONE and Role.LABEL_FREE in findings:
        return findings[Role.LABEL_FREE].shift
    if state.level(Role.LABELLED) is Verdict.NONE:
        return "unknown"
    return "concept" if Role.LABEL_FREE in findings else "loss"


def _worst(accuracy: AccuracyEstimate, worst_loss: float | None, classes: int | None) -> float | None:
    """What a guess would get; None where that is not known, or no worse than what is expected."""
    if accuracy.quantity == "loss":
        return worst_loss if worst_loss is not None and worst_loss > accuracy.expected else None
    return 1.0 / classes if classes is not None and 1.0 / classes < accuracy.expected else None


def _beyond(finding: Finding) -> float:
    if not finding.alarm or finding.threshold <= 0:
        return 0.0
    return _share(1.0 - finding.threshold / finding.statistic)


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))
