"""What the benchmark of activations draws and counts."""

import numpy as np

from tests.benchmarks.activations import WORLDS, case, line


def test_worlds_that_change_nothing_go_on_as_they_were() -> None:
    # Seed 0; halves of 200,000 losses differ by a few hundredths of their deviation where neighbours depend most
    for name, (usually, after, guess) in WORLDS.items():
        if after is usually and guess is None:
            halves = np.split(usually(200_000, np.random.default_rng(0)), 2)
            assert abs(halves[0].mean() - halves[1].mean()) < 0.1 * halves[0].std(), name


def test_harm_is_flagged_and_what_is_no_harm_is_not() -> None:
    quiet, harm = (case(world, 1000, 512, 1, 20) for world in ("AR(1) 0", "harm: AR(1) 0, higher by a deviation"))
    assert (quiet.flagged, quiet.alone, quiet.activations) == (0, 0, 20)
    assert harm.flagged > 15
    assert "0.00% flagged" in line(quiet)
