"""What new weights did not do: bursts, slow levels and long memories are not taken for harm of an activation."""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.signal import lfilter

from edge_agent.drift.observed import Labelled
from edge_agent.runtime.watch_answer import QUARTERS, Asked, no_worse_than, with_losses
from tests.runtime.test_watch_answer import flagged

Floats = NDArray[np.float64]
Stream = Callable[[int, np.random.Generator], Floats]

BEFORE, AFTER, GUESS = 1024, 256, 1.79


def long_memory(rows: int, rng: np.random.Generator) -> Floats:
    """Squares of an AR(1) 0.98."""
    steps, begin = rng.normal(size=rows) * np.sqrt(1 - 0.98**2), 0.98 * rng.normal(size=1)
    return np.asarray(np.square(lfilter([1.0], [1.0, -0.98], steps, zi=begin)[0]))


def bursts(rows: int, rng: np.random.Generator) -> Floats:
    """Small losses, and one time in 1,000 samples 64 in a row like those of mistakes."""
    begins = rng.random(rows + 64) < 1 / 1000
    on = np.lib.stride_tricks.sliding_window_view(begins, 64)[:rows].any(axis=1)
    return np.where(on, 2 * rng.exponential(size=rows), 0.01 * np.square(rng.normal(size=rows)))


def slow(rows: int, rng: np.random.Generator) -> Floats:
    """A level that goes up and down by nine tenths in 2,000 samples."""
    times = np.arange(rows) + rng.integers(2000)
    return np.square(rng.normal(size=rows)) * (1 + 0.9 * np.sin(2 * np.pi * times / 2000))


@pytest.mark.parametrize(("stream", "most"), [(long_memory, 3), (bursts, 7), (slow, 5)])
def test_odd_streams_are_seldom_taken_for_harm(stream: Stream, most: int) -> None:
    """Seed 7, 300 activations that change nothing. At 0.3, 1 and 0.7 % more than so many have probability 0.02 each;
    means compared alone took 0.8, 8.4 and 2 % for harm."""
    rng = np.random.default_rng(7)
    found = 0
    for _ in range(300):
        losses = stream(BEFORE + AFTER, rng)
        found += flagged(losses[:BEFORE], losses[BEFORE:], guess=GUESS if stream is bursts else None)
    assert found <= most


@pytest.mark.parametrize("guess", [None, GUESS])
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_losses_that_are_no_numbers_before_and_after_are_no_harm(share: float, guess: float | None) -> None:
    """Seed 11, 30 activations that change nothing: one that is not finite counts the same before and after."""
    rng = np.random.default_rng(11)
    for _ in range(30):
        losses = np.where(rng.random(BEFORE + AFTER) < share, np.nan, rng.random(BEFORE + AFTER))
        assert not flagged(losses[:BEFORE], losses[BEFORE:], guess=guess)


@pytest.mark.parametrize("share", [0.5, 1.0])
def test_weights_that_are_worse_throughout_are_flagged_among_bursts_and_without(share: float) -> None:
    """Seed 8: mistakes in half of the samples or all, where one in twenty was one."""
    rng = np.random.default_rng(8)
    found = []
    for _ in range(30):
        before, after = (np.where(rng.random(n) < part, 2.0, 0.02) for n, part in ((BEFORE, 0.05), (AFTER, share)))
        found.append(flagged(before, after, guess=GUESS))
    assert all(found)


def test_quarters_are_those_of_what_is_asked_for_however_the_samples_come() -> None:
    losses = np.arange(40.0)
    asked = no_worse_than(np.random.default_rng(9).exponential(size=80), 40, guess=100.0)
    assert asked is not None
    once = with_losses(asked, _labelled(losses), None)
    one_by_one = asked
    for loss in losses:
        one_by_one = with_losses(one_by_one, _labelled(np.array([loss])), None)
    assert once == one_by_one
    assert once.parts == tuple(losses.reshape(QUARTERS, 10).sum(axis=1))
    assert once.better_half == losses[:20].mean()


def test_what_an_earlier_version_asked_is_read_without_quarters() -> None:
    found = Asked.read([0.1, 0.5, 3, 0.6, 2.0])
    assert found == Asked(0.1, 0.5, 3, 0.6, 2.0)
    later = with_losses(found, _labelled(np.array([1.0])), None)
    assert (later.samples, later.parts, later.better_half) == (4, (), None)
    assert Asked.read([0.1, 0.5, 3, 0.6, 2.0, 0.1, 1, [0.1, 0.2, 0.3, 0.0]]).parts == (0.1, 0.2, 0.3, 0.0)


def _labelled(losses: Floats) -> Labelled:
    return Labelled([str(k) for k in range(len(losses))], np.zeros(len(losses)), losses, np.full(len(losses), np.nan))
