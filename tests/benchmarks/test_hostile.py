from pathlib import Path

import pytest

from tests.benchmarks.hostile import HOSTILE, MODES, QUICK_ATTACKS, QUICK_MODES, plans, run, run_arm
from tests.benchmarks.motion_fleet import MotionFleet

PARTING = MODES["mean, opposing parted"]


@pytest.mark.long
def test_what_is_refused_costs_the_honest_nothing_and_what_is_long_or_turned_little(tmp_path: Path) -> None:
    fleet = MotionFleet(tmp_path, plans(), seed=0)
    calm = run_arm(fleet, PARTING, "none", 2)
    assert calm.honest == {}
    for attack, reason in (("NaN", "bad-tensors"), ("copies", "copied-update")):
        arm = run_arm(fleet, PARTING, attack, 2)
        assert arm.refused == {reason: 2 * len(HOSTILE)}
        assert arm.accuracy == calm.accuracy
    flipped = run_arm(fleet, PARTING, "sign flip", 2)
    assert flipped.cohorts > calm.cohorts + 1
    assert flipped.accuracy == calm.accuracy
    long = run_arm(fleet, MODES["mean"], "x20", 2)
    assert long.shortened == 2 * len(HOSTILE)
    assert min(long.accuracy[family] - calm.accuracy[family] for family in calm.accuracy) > -0.05


@pytest.mark.long
def test_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    keep = tmp_path / "arms.jsonl"
    first = run([0], QUICK_MODES, quick=True, keep=keep)
    assert len(keep.read_text().splitlines()) == 1 + len(QUICK_ATTACKS) + 2
    assert run([0], QUICK_MODES, quick=True, keep=keep) == first
    assert {row.mode for row in first} == set(QUICK_MODES)
