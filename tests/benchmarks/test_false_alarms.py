"""What the benchmark of false alarms counts, and how it keeps it."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks.false_alarms import save, summaries
from tests.benchmarks.false_alarms_data.candidates import NAMES, fit_of
from tests.benchmarks.false_alarms_data.level import Rate, count, first_alarms
from tests.benchmarks.false_alarms_data.rise_chart import chart
from tests.benchmarks.false_alarms_data.worlds import WORLDS, Stretch, World


def test_alarms_are_counted_until_each_streams_first() -> None:
    statistics = np.array([[0.0, 5.0, 9.0, 9.0], [0.0, 0.0, 0.0, 0.0]])
    assert first_alarms(statistics, 4.0) == (1, 2 + 4)
    assert count(iter([statistics] * 9), 4.0, 10) == (2, 12)


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: str(world.name))
def test_a_world_has_the_inflation_that_it_says(world: World) -> None:
    # The variance of 400 means of 2000: off by 7 % in one standard deviation. Seed 0, 3 sigma.
    losses = world.losses(400, 2000, np.random.default_rng(0))
    assert losses.mean(axis=1).var() * 2000 / losses.var() == pytest.approx(world.inflation, rel=0.21)


@pytest.mark.parametrize("name", NAMES)
def test_a_candidate_rises_with_the_losses(name: str) -> None:
    rng = np.random.default_rng(0)
    losses = np.concatenate([rng.exponential(size=2000), 4 * rng.exponential(size=100)])
    index = np.stack([np.arange(96), np.append(np.arange(32), np.arange(2000, 2064))]).reshape(2, 3, 32)
    quiet, risen = fit_of(name, losses)(np.arange(2000))(index)
    assert risen[2] > quiet.max()


def test_parts_that_were_not_run_are_kept(tmp_path: Path) -> None:
    old = [Rate("unseen", "a", 1e-3, 3, 2000), Rate("mechanism", "b", 1e-3, 1, 1000)]
    save(old, tmp_path)
    path = save([Rate("unseen", "c", 1e-3, 2, 1000)], tmp_path)
    rows = json.loads(path.read_text(encoding="utf-8"))["rates"]
    assert [(row["case"], row["ratio"]) for row in rows] == [("b", 1.0), ("c", 2.0)]


def test_calibrations_of_several_worlds_are_summed_up_together() -> None:
    found = [Rate("unseen", f"e-detector, {world.name}, 50 effective", 1e-2, alarms, 1000) for world, alarms in
             zip(WORLDS, (5, 10, 12, 20), strict=True)]  # fmt: skip
    (words,) = summaries(found)
    assert words.startswith("  e-detector, 50 effective at 1e-02: 4 calibrations, ratio median 1.10")
    assert "at most 1.5 in 75%" in words
    (words,) = summaries([Rate("warm-up", world.name, 1e-2, 1, 1000) for world in WORLDS])
    assert words.startswith("  warm-up at 1e-02: 4 calibrations, ratio median 0.10")


def test_the_picture_of_a_stretch_has_its_parts_and_both_halves_means() -> None:
    losses = np.append(np.full(600, 0.25), np.full(600, 0.5))
    drawn = chart(Stretch("toy", losses, ()))
    assert drawn.count("<circle") == 10
    assert "mean 0.25" in drawn
    assert "mean 0.50" in drawn
