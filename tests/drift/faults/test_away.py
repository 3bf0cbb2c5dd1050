"""A reading that strays is let go without being masked, as soon as a few more show that it did."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.drift.faults import FaultState
from edge_agent.drift.faults.away import HELD_FROM, look_away
from tests.drift.faults.sensors import params_of, slow

ROWS, SENSORS = 32, 4
PARAMS = params_of(slow(2000, SENSORS, 1))
PART = PARAMS.parts[0]
STANDING = FaultState.start(PARAMS).parts[0].standing


@given(st.integers(0, ROWS - 1), st.integers(0, SENSORS - 1), st.booleans())
@settings(max_examples=60, deadline=None)
def test_one_reading_outside_its_range_is_let_go_and_remembered(row: int, sensor: int, missing_after: bool) -> None:
    readings = np.tile((PART.inner_low + PART.inner_high) / 2, (ROWS, 1))
    readings[row, sensor] = PART.inner_high[sensor] + 0.01
    if missing_after:
        readings[row + 1 :, sensor] = np.nan
    before = np.concatenate([readings[:1], readings[:-1]])
    times_s = np.arange(5, 5 + ROWS, dtype=np.float64)
    found = look_away(PART, STANDING, readings, before, times_s)
    left = 1 if missing_after else ROWS - row
    assert found.changed["away_value"][sensor] == readings[row, sensor]
    assert found.changed["away_s"][sensor] == times_s[row]
    assert found.changed["away_before"][sensor] == before[row, sensor]
    others = np.arange(SENSORS) != sensor
    assert not found.changed["away"][others].any()
    assert (found.unit == -1).all()
    assert not found.suspect.any()
    if left < HELD_FROM:
        assert found.changed["away"][sensor] == left
    else:
        assert found.changed["away"][sensor] == 0
        assert not found.changed["away_fit"][:, sensor].any()
        assert found.changed["inner_high"][sensor] == PART.limit_high[sensor]
        assert found.changed["inner_low"][sensor] == PART.limit_low[sensor]
