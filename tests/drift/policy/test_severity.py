import math

import numpy as np
import pytest

from edge_agent.drift.accuracy.estimated import AccuracyEstimate
from edge_agent.drift.finding import Attribution, Finding
from edge_agent.drift.policy.severity import LOSS, Severity, kind_of_shift, mattering, severity
from edge_agent.drift.policy.table import Verdict
from edge_agent.drift.policy.verdict import Held, PolicyState, Role
from edge_agent.drift.sequential.loss_level import LossLevelState, step
from tests.drift.sequential.streams import SIZE, labelled, params_of

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


@pytest.mark.parametrize(
    ("usual", "now", "worst", "alarms"),
    [
        (0.0, 1e-4, math.log(6), False),
        (1e-9, 1e-5, math.log(6), False),
        (0.7, 0.7 + 1e-6, None, False),
        (0.0, 0.01, math.log(6), True),
        (0.0, 5.0, math.log(6), True),
        (0.7, 0.8, None, True),
        (0.0, 1e-4, None, True),
    ],
)
def test_a_loss_that_has_hardly_risen_warns_and_does_not_alarm(
    usual: float, now: float, worst: float | None, alarms: bool
) -> None:
    """The test of the level is sure of each of these within a batch: its reference has no other losses."""
    params = params_of(np.full(300, usual))
    _, finding = step(params, LossLevelState.start(params), labelled(np.full(SIZE, now)))
    assert finding.alarm
    mattered = mattering(finding, worst)
    assert (mattered.alarm, mattered.warning) == (alarms, True)


def test_what_tells_no_loss_stays_as_it_is() -> None:
    assert mattering(FREE_FINDING, 1.0) is FREE_FINDING
    quiet = Finding(1.5, 2.0, 1.0, attributions=(Attribution(LOSS, 0.2, 0.2001),))
    assert mattering(quiet, 1.0) is quiet
