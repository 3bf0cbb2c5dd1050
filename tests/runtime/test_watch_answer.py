"""A flag that an activation has not answered is raised anew, about the weights that serve now."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edge_agent.drift.finding import Finding
from edge_agent.drift.observed import Labelled
from edge_agent.drift.promise.blocks import dependence
from edge_agent.drift.sequential.calibration import judged_series
from edge_agent.drift.sequential.table import Distribution
from edge_agent.model.bundle import Bundle
from edge_agent.runtime.watch_answer import RENEWED_AT_MOST, Usual, no_worse_than, unanswered, with_losses
from tests.runtime.bench import BATCH, RULE, Parts
from tests.runtime.watched import OWN, SIZE, rules_of, watched_bundle
from tests.runtime.watched_gateway import Gateway

WARM_UP = RULE.warmup_batches * BATCH
BAD, GOOD = [True] * BATCH, [False] * BATCH
WEIGHTS = ["a" * 64, "b" * 64, "c" * 64, "d" * 64, "e" * 64]


class Stream:
    """Labelled samples one after the other, by the weights that serve."""

    def __init__(self, path: Path, bundle: Bundle) -> None:
        self.parts = Parts(path, bundle)
        self.first = 0

    def feed(self, losses: list[bool]) -> int:
        self.first += len(losses)
        return self.parts.feed(self.first - len(losses), losses, weights=self.parts.active.weights)

    def drift(self) -> None:
        assert self.feed(GOOD * 4) == 0
        assert self.feed(BAD) == 1


@pytest.fixture
def stream(tmp_path: Path, bundle: Bundle) -> Stream:
    return Stream(tmp_path, bundle)


def test_what_the_new_weights_have_not_repaired_is_flagged_at_the_end_of_their_warm_up(stream: Stream) -> None:
    stream.drift()
    stream.parts.activate(WEIGHTS[1])
    assert stream.feed(BAD) == 0
    assert not stream.parts.watch.open_flag
    assert stream.feed(BAD) == 1
    first, again = stream.parts.flags()
    assert (again.weights, again.firing, again.flag_id != first.flag_id) == (WEIGHTS[1], 2, True)
    assert again.first_drifted_sample == f"s{stream.first - WARM_UP}"
    (before,) = {one.before for flag in (first, again) for one in flag.attributions if one.name == "loss"}
    assert again.statistic == pytest.approx(first.statistic)
    assert before < again.statistic
    assert stream.parts.watch.open_flag


@pytest.mark.parametrize(("places", "flags"), [("", 0), ("024", 0), ("02461", 1), ("01234567", 1)])
def test_half_of_the_rise_must_be_gone(stream: Stream, places: str, flags: int) -> None:
    stream.drift()
    stream.parts.activate(WEIGHTS[1])
    assert stream.feed([str(place) in places for place in range(WARM_UP)]) == flags


def test_weights_that_repair_it_are_the_usual_from_then_on(stream: Stream) -> None:
    stream.drift()
    stream.parts.activate(WEIGHTS[1])
    assert stream.feed(GOOD * 20) == 0
    assert stream.feed(BAD) == 1


def test_weights_that_follow_before_it_could_be_told_are_asked_too(stream: Stream) -> None:
    stream.drift()
    stream.parts.activate(WEIGHTS[1])
    assert stream.feed(BAD) == 0
    stream.parts.activate(WEIGHTS[2])
    assert stream.feed(BAD * RULE.warmup_batches) == 1


def test_a_restart_keeps_what_is_asked(stream: Stream) -> None:
    stream.drift()
    stream.parts.activate(WEIGHTS[1])
    assert stream.feed(BAD) == 0
    stream.parts = stream.parts.restarted()
    assert stream.feed(BAD) == 1


def test_where_few_samples_came_before_bad_weights_are_their_own_usual(stream: Stream) -> None:
    assert stream.feed(GOOD * 3) == 0
    stream.parts.activate(WEIGHTS[1])
    assert stream.feed(BAD * 10) == 0


def test_it_is_said_anew_only_so_often(stream: Stream) -> None:
    stream.drift()
    flags = []
    for weights in WEIGHTS[1:]:
        stream.parts.activate(weights)
        flags.append(stream.feed(BAD * RULE.warmup_batches))
    assert flags == [1] * RENEWED_AT_MOST + [0] * (len(WEIGHTS) - 1 - RENEWED_AT_MOST)


def test_the_losses_level_is_asked_as_well(tmp_path: Path, bundle: Bundle) -> None:
    whole = watched_bundle(bundle)
    gateway = Gateway(tmp_path, whole, rules_of(whole, label_free="off"))
    gateway.parts.activate(OWN, 1)
    assert gateway.serve(20 * SIZE, label=True) == 0
    assert gateway.serve(2 * SIZE, label=True, wrong=True) == 1
    gateway.parts.activate("d" * 64, 2)
    warm_up = gateway.parts.watch.rules.labelled.monitor.params.warmup_batches
    assert gateway.serve((warm_up - 1) * SIZE, label=True, wrong=True) == 0
    assert gateway.serve(SIZE, label=True, wrong=True) == 1
    assert gateway.flags[-1].weights == "d" * 64
    gateway.parts.close()


@pytest.mark.parametrize(("wrong", "flags"), [(True, 1), (False, 0)])
def test_a_release_that_comes_at_the_start_is_judged_by_the_reference(
    tmp_path: Path, bundle: Bundle, wrong: bool, flags: int
) -> None:
    """A stream that has drifted already would else be usual for ever."""
    whole = watched_bundle(bundle)
    gateway = Gateway(tmp_path, whole, rules_of(whole, label_free="off"))
    gateway.parts.activate(OWN, 1)
    assert gateway.serve(2 * SIZE - 1, label=True) == 0
    gateway.parts.activate("d" * 64, 2)
    gateway.restart()
    warm_up = gateway.parts.watch.rules.labelled.monitor.params.warmup_batches
    assert gateway.serve((warm_up - 1) * SIZE, label=True, wrong=wrong) == 0
    assert gateway.serve(SIZE, label=True, wrong=wrong) == flags
    assert [flag.shift for flag in gateway.flags] == ["activation"] * flags
    gateway.parts.close()


def test_weights_that_are_worse_than_those_before_are_flagged_though_no_flag_stood(stream: Stream) -> None:
    assert stream.feed(GOOD * 8) == 0
    stream.parts.activate(WEIGHTS[1])
    assert stream.feed(BAD) == 0
    stream.parts = stream.parts.restarted()
    assert stream.feed(BAD) == 1
    (flag,) = stream.parts.flags()
    assert (flag.weights, flag.shift, flag.firing) == (WEIGHTS[1], "activation", 1)
    assert flag.first_drifted_sample == f"s{stream.first - WARM_UP}"
    (loss,) = (one for one in flag.attributions if one.name == "loss")
    assert loss.before < 0.01 < loss.now
    stream.parts.activate(WEIGHTS[2])
    assert stream.feed(GOOD * 8) == 0, "those that follow have answered it"


def test_what_an_activation_could_not_tell_yet_is_asked_of_the_next(stream: Stream) -> None:
    assert stream.feed(GOOD * 8) == 0
    stream.parts.activate(WEIGHTS[1])
    assert stream.feed(GOOD) == 0
    stream.parts.activate(WEIGHTS[2])
    assert stream.feed(BAD * RULE.warmup_batches) == 1


def test_another_bundle_s_losses_are_not_compared_with_those_before_though_that_was_asked(stream: Stream) -> None:
    assert stream.feed(GOOD * 8) == 0
    stream.parts.activate(WEIGHTS[1])
    assert stream.feed(GOOD) == 0
    stream.parts.server.swap(replace(stream.parts.active, bundle="f" * 64, weights=WEIGHTS[2]))
    assert stream.feed(BAD * RULE.warmup_batches) == 0


def flagged(
    before: NDArray[np.float64],
    after: NDArray[np.float64],
    *,
    guess: float | None = None,
    usual: Usual | None = None,
) -> bool:
    """Whether these losses of new weights are plainly worse than those of the weights before."""
    one = no_worse_than(before, len(after), guess=guess, usual=usual)
    if one is None:
        return False
    shown = Labelled([str(k) for k in range(len(after))], np.zeros(len(after)), after, np.full(len(after), np.nan))
    found = unanswered(with_losses(one, shown, None), Finding(0.0, 1.0, 1.0, rows=len(after)))
    assert found is None or found.shift == "activation"
    return found is not None


LOSSES = st.lists(st.floats(0, 1e6), min_size=32, max_size=64).map(np.array)


@settings(max_examples=40)
@given(before=LOSSES, scale=st.floats(1e-3, 1e3), share=st.floats(0, 1))
def test_losses_that_are_no_higher_are_never_flagged_in_any_unit(
    before: NDArray[np.float64], scale: float, share: float
) -> None:
    after = np.full(16, before.mean() * share)
    assert not flagged(before, after)
    assert not flagged(scale * before, scale * after)


def test_an_activation_that_changes_nothing_is_flagged_once_in_a_thousand_and_one_that_harms_at_once() -> None:
    """Seed 5, squares of a Gaussian. At 1e-3 more than 4 of 400 have probability 6e-5; 50 rises by a deviation."""
    rng = np.random.default_rng(5)
    streams = np.square(rng.normal(size=(400, 768)))
    assert sum(flagged(one[:512], one[512:]) for one in streams) <= 4
    risen = [flagged(one[:512], one[512:] + np.sqrt(2)) for one in streams[:50]]
    assert np.mean(risen) > 0.9


def moving(rows: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """A level that moves by a half, once in 2,000 samples."""
    phase = 2 * np.pi * (np.arange(rows) + rng.integers(2000)) / 2000
    return np.asarray(rng.exponential(1, rows) * (1 + 0.5 * np.sin(phase)))


def in_bursts(rows: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Some 64 mistakes on end, once in 300 samples."""
    begun = rng.random(rows + 64) < 1 / 300
    wrong = np.convolve(begun, np.ones(64))[64 : 64 + rows] > 0
    return np.where(wrong, 0.5 + rng.exponential(1.0, rows), rng.exponential(0.05, rows))


def seldom_wrong(rows: int, rng: np.random.Generator, share: float = 1 / 200) -> NDArray[np.float64]:
    """A mistake now and then."""
    return np.where(rng.random(rows) < share, 0.7 + rng.exponential(1.5, rows), rng.exponential(0.004, rows))


def usual_of(losses: NDArray[np.float64]) -> Usual:
    """As a bundle has it that was calibrated on these losses."""
    return Usual(Distribution.of(losses), dependence(judged_series(losses)).inflation, len(losses))


@pytest.mark.parametrize("losses", [moving, in_bursts, seldom_wrong])
def test_what_the_reference_shows_of_slow_and_seldom_changes_is_not_taken_for_harm(
    losses: Callable[[int, np.random.Generator], NDArray[np.float64]],
) -> None:
    """Seed 6. At 1e-3 more than 3 of 400 have probability 8e-4; by 512 losses alone 76, 11 and 4 are flagged."""
    rng = np.random.default_rng(6)
    usual = usual_of(losses(4000, rng))
    streams = [losses(768, rng) for _ in range(400)]
    assert sum(flagged(one[:512], one[512:], usual=usual) for one in streams) <= 3


def test_mistakes_that_become_many_are_told_beside_what_is_usual() -> None:
    """Seed 7, 100 activations: from one in 200 to one in ten."""
    rng = np.random.default_rng(7)
    usual = usual_of(seldom_wrong(4000, rng))
    told = [flagged(seldom_wrong(1024, rng), seldom_wrong(256, rng, 0.1), usual=usual) for _ in range(100)]
    assert np.mean(told) > 0.9
