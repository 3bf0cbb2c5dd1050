"""Which monitors would alarm more often than anybody wants, and which have proven nothing."""

import pytest

from edge_agent.drift.promise.tolerable import TOLERABLE_RATE, cries_wolf, is_unproven
from edge_agent.wire.manifest import MonitorSpec, PromiseSpec


def spec_of(rate: float, lowest: float | None) -> MonitorSpec:
    promise = None if lowest is None else PromiseSpec(lowest_rate=lowest)
    return MonitorSpec(parameters={}, batch_size=32, false_alarm_rate=rate, promise=promise)


@pytest.mark.parametrize(
    ("rate", "lowest", "wolf", "unproven"),
    [
        (1e-3, 1e-3, False, False),
        (TOLERABLE_RATE, TOLERABLE_RATE, False, False),
        (0.02, 0.02, True, True),  # the lowest that a short reference supports
        (0.02, 0.001, False, False),  # asked for
        (1e-4, 0.02, False, True),  # aims at fewer than it can promise
        (0.02, None, False, False),
    ],
)
def test_a_rate_that_nobody_asked_for_is_tolerable_or_not(
    rate: float, lowest: float | None, wolf: bool, unproven: bool
) -> None:
    spec = spec_of(rate, lowest)
    assert (cries_wolf(spec), is_unproven(spec)) == (wolf, unproven)


def test_a_monitor_that_a_bundle_lacks_is_not_unproven() -> None:
    assert not is_unproven(None)
