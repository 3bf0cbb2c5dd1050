"""Gas sensors that aged, replayed: the loss is flagged soon after it rose, broken sensors are faults.

One seed. Level: on batch 1's own held-out rows, replayed, nothing fires. Power: the accuracy falls by 20 points.
"""

from pathlib import Path

import numpy as np
import pytest

from edge_agent.cli.drift_replaying import Wanted, replay_of
from tests.benchmarks.drift_replay import gas, replays
from tests.shared_data import DATA


@pytest.mark.data
def test_aged_gas_sensors_are_flagged_and_the_reference_is_not(tmp_path: Path) -> None:
    assert DATA.exists()
    recorded = gas()
    (_, labelled), (_, unlabelled) = replays("gas", recorded, tmp_path)
    assert 300 < labelled.fired[0].row < 1000
    assert labelled.fired[0].monitor == "loss-rise"
    assert {fault.feature for fault in labelled.faults} >= {"x[30]", "x[31]"}
    assert (unlabelled.labelled, unlabelled.fired) == (0, [])
    assert [fault.feature for fault in unlabelled.faults] == [fault.feature for fault in labelled.faults]
    np.savez(tmp_path / "same.npz", **recorded.calibration)  # type: ignore[arg-type]  # numpy's stub mixes in a keyword
    same = replay_of(Wanted(tmp_path / "same.npz", tmp_path / "bundle"))
    assert (same.rows, same.fired, same.faults) == (200, [], [])
