import math

import pytest

from edge_agent.drift.accuracy.estimated import AccuracyEstimate
from edge_agent.drift.finding import Attribution, Finding
from edge_agent.drift.policy.severity import LOSS, Severity, kind_of_shift, severity
from edge_agent.drift.policy.table import Verdict
from edge_agent.drift.policy.verdict import Held, PolicyState, Role

ALARMED = PolicyState(Verdict.ALARM, {Role.LABELLED: Held(Verdict.ALARM)})
FREE = PolicyState(Verdict.ALARM, {Role.LABEL_FREE: Held(Verdict.ALARM)})
LOSS_FINDING = Finding(6.0, 2.0, 1.0, shift="loss", attributions=(Attribution(LOSS, 0.2, 0.6),))
FREE_FINDING = Finding(6.0, 2.0, 1.0, shift="covariate")


def told(
    state: PolicyState,
    findings: dict[Role, Finding],
    *,
    worst: float | None = 1.0,
    accuracy: AccuracyEstimate | None = None,
) -> Severity:
    return severity(state, findings, worst_loss=worst, classes=2, accuracy=accuracy)


def estimate(value: float, refusal: str = "") -> AccuracyEstimate:
    return AccuracyEstimate("accuracy", value, value - 0.1, value + 0.1, 0.9, refusal, "", 500, 1)  # type: ignore[arg-type]


def test_a_verdict_of_none_is_not_severe() -> None:
    assert told(PolicyState(), {Role.LABELLED: LOSS_FINDING}) == Severity()


def test_with_labels_it_is_the_share_of_the_way_to_a_guess() -> None:
    half = told(ALARMED, {Role.LABELLED: LOSS_FINDING})
    assert half.measured_by == "loss"
    assert half.value == pytest.approx(0.5)
    worse = Finding(6.0, 2.0, 1.0, attributions=(Attribution(LOSS, 0.2, 5.0),))
    assert told(ALARMED, {Role.LABELLED: worse}) == Severity(1.0, "loss")


def test_without_labels_it_is_the_estimated_accuracys_way_to_chance() -> None:
    found = told(FREE, {Role.LABEL_FREE: FREE_FINDING}, accuracy=estimate(0.7))
    assert found.measured_by == "accuracy"
    assert found.value == pytest.approx(0.5)


@pytest.mark.parametrize("accuracy", [None, estimate(math.nan, "support")])
def test_where_neither_is_known_it_is_how_clear_it_is(accuracy: AccuracyEstimate | None) -> None:
    found = told(FREE, {Role.LABEL_FREE: FREE_FINDING}, worst=None, accuracy=accuracy)
    assert found.measured_by == "statistic"
    assert found.value == pytest.approx(2 / 3)


def test_the_kind_of_shift_is_told_as_far_as_the_monitors_tell() -> None:
    assert kind_of_shift(ALARMED, {Role.LABELLED: LOSS_FINDING}) == "loss"
    quiet = Finding(0.5, 2.0, 1.0)
    assert kind_of_shift(ALARMED, {Role.LABELLED: LOSS_FINDING, Role.LABEL_FREE: quiet}) == "concept"
    assert kind_of_shift(FREE, {Role.LABELLED: quiet, Role.LABEL_FREE: FREE_FINDING}) == "covariate"
    assert kind_of_shift(PolicyState(), {Role.LABEL_FREE: FREE_FINDING}) == "unknown"
