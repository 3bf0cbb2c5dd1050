"""Thresholds from maxima against statistics whose tail is known."""

import math

import numpy as np
import pytest

from edge_agent.drift.promise.maxima import Maxima


def exponential(streams: int, batches: int) -> Maxima:
    """Independent batches: a threshold h is crossed at the rate exp(-h)."""
    return Maxima.of(np.random.default_rng(0).exponential(size=(streams, batches)))


def test_the_threshold_is_the_statistics_own_quantile() -> None:
    # 200 crossings: the rate is off by 7 % in one standard deviation, the threshold by 0.07; seed 0, 3 sigma.
    assert exponential(500, 400).threshold_at(1e-3) == pytest.approx(-math.log(1e-3), abs=0.22)


def test_a_rate_below_what_the_streams_show_follows_the_tail() -> None:
    # 5 crossings expected: read off directly, one standard deviation would be 0.45.
    assert exponential(500, 400).threshold_at(2.5e-5) == pytest.approx(-math.log(2.5e-5), abs=0.7)


def test_the_rate_above_a_threshold_is_its_inverse() -> None:
    found = exponential(500, 400)
    assert found.rate_above(found.threshold_at(2e-3)) == pytest.approx(2e-3, rel=0.05)
    assert found.rate_above(-1.0) == math.inf


def test_a_monitors_settling_does_not_count() -> None:
    statistics = np.random.default_rng(0).exponential(size=(500, 400))
    slow = statistics.copy()
    slow[:, :80] = 0.0
    assert Maxima.of(slow).threshold_at(1e-3) == pytest.approx(Maxima.of(statistics).threshold_at(1e-3), abs=0.3)
