import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.drift.detectors import (
    STATE_KEY,
    DetectorState,
    DriftReporter,
    InferenceDriftMonitor,
    LossThresholdDetector,
)
from edge_agent.errors import DataError


@given(st.lists(st.floats(0, 10), min_size=1, max_size=40))
def test_published_rule_flags_exactly_the_rises_above_gamma(losses: list[float]) -> None:
    detector = LossThresholdDetector()
    flags = [detector.update(loss) for loss in losses]
    assert flags == [False] + [now > before + 0.1 for before, now in itertools.pairwise(losses)]


def test_patience_needs_exceedances_in_a_row() -> None:
    detector = LossThresholdDetector(gamma=0.1, patience=2)
    assert [detector.update(loss) for loss in (0.0, 1.0, 1.0, 0.0, 1.0, 2.0)] == [False] * 5 + [True]


def test_a_loss_that_is_not_finite_flags_and_leaves_no_trace() -> None:
    detector = LossThresholdDetector()
    assert [detector.update(loss) for loss in (math.nan, 0.5, math.nan, math.inf, 0.5, 0.7)] == [
        False,
        False,
        True,
        True,
        False,
        True,
    ]


@given(st.lists(st.floats(0, 10), max_size=20), st.lists(st.floats(0, 10), max_size=20))
def test_reporter_over_rounds_equals_one_detector(first: list[float], second: list[float]) -> None:
    whole = LossThresholdDetector()
    memory: dict[str, DetectorState] = {}
    for loss in first + second:
        assert DriftReporter(memory).observe(loss) == whole.update(loss)
    assert first + second == [] or memory[STATE_KEY] == whole.state_dict()


def test_reporter_names_the_metrics_and_resets() -> None:
    memory: dict[str, DetectorState] = {}
    DriftReporter(memory).observe(0.1)
    assert DriftReporter(memory).metrics(0.5, 10) == {"num-examples": 10, "clma-loss": 0.5, "clma-drift": 1}
    DriftReporter(memory).reset()
    assert DriftReporter(memory).metrics(9.0, 1)["clma-drift"] == 0


def test_inference_monitor_observes_and_resets() -> None:
    monitor = InferenceDriftMonitor()
    assert [monitor.observe(loss) for loss in (0.1, 0.5)] == [False, True]
    monitor.reset()
    assert not monitor.observe(9.0)


@pytest.mark.parametrize("wrong", [{"gamma": -0.1}, {"gamma": math.nan}, {"patience": 0}])
def test_constants_out_of_range_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(DataError, match=next(iter(wrong))):
        LossThresholdDetector(**wrong)  # type: ignore[arg-type]  # a float where a whole number belongs
