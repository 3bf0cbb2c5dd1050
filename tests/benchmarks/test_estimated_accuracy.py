"""The benchmark of estimated accuracies on one stretch, and its ways of shifting and tampering."""

import numpy as np
import pytest

from tests.benchmarks.accuracy_data.neighbours import WALKS, told
from tests.benchmarks.accuracy_data.shifts import KINDS, importances, tampered
from tests.benchmarks.accuracy_data.tables import TAMPERED, figures, summary
from tests.benchmarks.estimated_accuracy import QUICK, run


@pytest.mark.data
def test_a_quick_run_meets_its_goals_on_one_stretch() -> None:
    cases = [run(stretch, part, [100], None) for stretch, part in zip(QUICK, ("constructed", "stream"), strict=True)]
    rows = {row["windows"]: row for case in cases for row in figures(case)}
    shifted, stream = rows["all strengths"], rows["stream"]
    assert shifted["error"] <= 3
    assert shifted["near"] >= 0.9
    assert shifted["covered"] >= 0.85
    assert rows["strength 0"]["refused"] == 0
    assert stream["held_covered_or_refused"] >= 0.9
    tamperings = [row for name, row in rows.items() if name.startswith(TAMPERED)]
    assert np.mean([row["covered_or_refused"] for row in tamperings]) >= 0.9
    assert "tampered" in summary(cases)


@pytest.mark.parametrize("kind", KINDS)
def test_importances_are_chances_that_grow_with_the_strength(kind: str) -> None:
    features = np.random.default_rng(0).normal(size=(500, 6))
    weak, strong = (importances(features, kind, strength, np.random.default_rng(1)) for strength in (0.5, 1.5))
    assert weak.sum() == pytest.approx(1.0)
    # rows that the chances leave: exp(-strength^2) of them for a normal score
    assert 0.65 < 1 / (weak @ weak) / 500 < 0.9
    assert 0.05 < 1 / (strong @ strong) / 500 < 0.3


def test_tampering_changes_readings_and_keeps_their_shape() -> None:
    features = np.random.default_rng(0).normal(size=(50, 8)) + np.arange(8)
    spread = features.std(axis=0)
    names = set()
    for name, readings in tampered(features, spread, np.random.default_rng(1)):
        assert readings.shape == features.shape
        assert not np.array_equal(readings, features)
        names.add(name)
    assert len(names) == 19


def test_windows_whose_neighbours_resemble_each_other_are_counted_by_what_became_of_them() -> None:
    unchanged, noisy = (told(0.0, 1000, sensor, 1, 3) for sensor in ("", "noise of its own size"))
    assert (unchanged.windows, unchanged.refusals) == (3, {})
    assert noisy.refusals == {"unlike": 3}
    assert "figures 0%, covered -; unlike 100.0%" in str(noisy)
    assert told(1.0, 500, "", 1, 8).windows == WALKS
