from pathlib import Path

import pytest

from tests.benchmarks.hostile import HOSTILE, plans, run_arm
from tests.benchmarks.motion_fleet import MotionFleet


@pytest.mark.long
def test_what_is_refused_costs_the_honest_nothing_and_a_turned_sign_is_outvoted(tmp_path: Path) -> None:
    fleet = MotionFleet(tmp_path, plans(), seed=0)
    calm = run_arm(fleet, "median", "none", 2)
    for attack, reason in (("NaN", "bad-tensors"), ("copies", "copied-update")):
        arm = run_arm(fleet, "median", attack, 2)
        assert arm.refused == {reason: 2 * len(HOSTILE)}
        assert arm.accuracy == calm.accuracy
    flipped = run_arm(fleet, "median", "sign flip", 2)
    assert flipped.refused == {}
    assert min(flipped.accuracy[family] - calm.accuracy[family] for family in calm.accuracy) > -0.05
