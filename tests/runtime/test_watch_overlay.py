"""Overlays under the monitors: the gateway is judged by its release, whatever lies on it, and no drift is hidden."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.model.bundle import Bundle
from edge_agent.runtime.watch_standing import Place
from edge_agent.serving.server import Overlay
from edge_agent.wire.messages import CountsEvent
from tests.runtime.watched import OWN, SIZE, labelled, rules_of, served_of
from tests.runtime.watched_gateway import SHIFT, Gateway

NEXT = "d" * 64


class Overlaid(Gateway):
    """A gateway whose release may have an overlay, which serves as the release does."""

    made = 0

    @property
    def weights(self) -> str:
        return self.parts.active.made_by

    @property
    def place(self) -> Place:
        return self.watch.standing.place

    def lay(self) -> str:
        server = self.parts.server
        self.made += 1
        digest = f"{self.made:064x}"
        overlaid = replace(server.release, overlay=Overlay(digest, self.made, server.release.weights))
        assert server.lay(overlaid, on=server.release)
        return digest

    def activate(self, weights: str, version: int) -> None:
        release = self.parts.server.release
        self.parts.server.swap(replace(release, weights=weights, version=version, disowned=()))

    def restart(self) -> None:
        """After a kill: the release serves."""
        self.parts.server.swap(replace(self.parts.server.release, disowned=()))
        super().restart()

    def take_off(self, *, worse: bool = False) -> None:
        self.parts.server.take_off(on=self.parts.server.release, worse=worse)

    def seen(self) -> None:
        """The recorder's next call."""
        self.watch.consume([], self.parts.active, now_s=self.now_s)

    def wrong(self, count: int, weights: str) -> int:
        """Labels that say of so many samples, served by these weights, that all were wrong."""
        outputs = np.zeros((count, 3), np.float32)
        outputs[:, 0] = 9.0
        batch, made = served_of(self.bundle, self.first, np.zeros((count, 4), np.float32), outputs, weights)
        with self.parts.samples_db.transaction():
            joined = self.parts.store.add(batch, made, self.now_s)
            joined += self.parts.store.label(labelled(self.first, np.ones(count, np.int64)), self.now_s)
        self.first += count
        return self.watch.consume(joined, self.parts.active, now_s=self.now_s)

    @property
    def learning(self) -> int:
        counts: list[int] = self.watch.standing.states["label-free"].to_arrays()["counts"].tolist()
        return counts[0]


@pytest.fixture
def gateway(tmp_path: Path, whole: Bundle) -> Iterator[Overlaid]:
    one = Overlaid(tmp_path, whole, rules_of(whole, label_rows=400))
    yield one
    one.parts.close()


def test_flag_verdict_and_the_evidence_of_losses_outlast_a_swap(gateway: Overlaid) -> None:
    gateway.serve(10 * SIZE, label=True)
    gateway.wrong(4 * SIZE, OWN)
    before = gateway.watch.standing
    assert before.place.open_flag
    gateway.lay()
    gateway.seen()
    after = gateway.watch.standing
    kept = ("epoch", "weights", "cursor", "drifted_from", "open_flag", "flag")
    assert [getattr(after.place, name) for name in kept] == [getattr(before.place, name) for name in kept]
    assert (after.policy, after.facts) == (before.policy, before.facts)
    for name in ("loss-level", "arrivals"):
        now, then = after.states[name].to_arrays(), before.states[name].to_arrays()
        assert all(np.array_equal(now[key], then[key], equal_nan=True) for key in then)


def test_inputs_that_move_are_flagged_though_every_batch_has_an_overlay_of_its_own(gateway: Overlaid) -> None:
    """The worst that swaps could do, which pacing forbids: the parts of the model never leave their warm-up."""
    gateway.serve(30 * SIZE)
    batches = 0
    while not gateway.flags and batches < 20:
        gateway.lay()
        gateway.serve(SIZE, moved=SHIFT)
        batches += 1
    (flag,) = gateway.flags
    assert batches <= 12
    assert (flag.monitor, flag.weights) == ("label-free", OWN)
    assert flag.overlay is not None
    assert (flag.overlay.digest, flag.overlay.batches) == (gateway.weights, gateway.made)


def test_inputs_that_moved_are_no_new_normal_after_a_swap_as_they_are_after_an_activation(gateway: Overlaid) -> None:
    gateway.serve(30 * SIZE)
    gateway.serve(12 * SIZE, moved=SHIFT)
    means = gateway.watch.standing.states["label-free"].to_arrays()["means"]
    gateway.lay()
    gateway.seen()
    state = gateway.watch.standing.states["label-free"].to_arrays()
    inputs = np.flatnonzero(state["means"].any(axis=0))
    assert len(inputs) > 0
    assert np.array_equal(state["means"][:, inputs], means[:, inputs])
    assert state["counts"].tolist()[1] == 0, "what is normal of the inputs is not learnt anew"
    gateway.activate(NEXT, 2)
    gateway.seen()
    assert gateway.watch.standing.states["label-free"].to_arrays()["counts"].tolist()[1] == 1


def test_losses_that_rise_under_an_overlay_are_flagged_by_the_releases_level(gateway: Overlaid) -> None:
    gateway.serve(10 * SIZE, label=True)
    laid = gateway.lay()
    gateway.seen()
    assert gateway.wrong(4 * SIZE, laid) == 1
    (flag,) = gateway.flags
    assert (flag.monitor, flag.weights) == ("loss-level", OWN)
    assert flag.overlay is not None
    assert flag.overlay.digest == laid


def test_late_labels_of_an_overlay_before_count_but_not_of_one_that_was_worse(gateway: Overlaid) -> None:
    gateway.serve(10 * SIZE, label=True)
    laid = [gateway.lay() for _ in range(2)]
    gateway.seen()  # the first was never seen by the recorder: it served nothing
    gateway.lay()
    gateway.seen()
    batches = gateway.watch.standing.batches["loss-level"]
    gateway.wrong(SIZE, laid[0])
    assert gateway.watch.standing.batches["loss-level"] == batches
    gateway.wrong(SIZE, laid[1])
    assert gateway.watch.standing.batches["loss-level"] > batches
    worse = gateway.lay()
    gateway.seen()
    gateway.take_off(worse=True)
    gateway.seen()
    batches, flags = gateway.watch.standing.batches["loss-level"], gateway.watch.firings
    gateway.wrong(8 * SIZE, worse)
    assert (gateway.watch.standing.batches["loss-level"], gateway.watch.firings) == (batches, flags)
    assert worse not in gateway.place.overlays


def test_a_killed_agent_serves_the_release_and_late_labels_still_count(gateway: Overlaid) -> None:
    gateway.serve(10 * SIZE, label=True)
    laid = gateway.lay()
    gateway.seen()
    gateway.restart()
    gateway.seen()
    assert (gateway.place.overlay, gateway.place.weights, gateway.place.overlays) == ("", OWN, (laid,))
    batches = gateway.watch.standing.batches["loss-level"]
    gateway.wrong(SIZE, laid)
    assert gateway.watch.standing.batches["loss-level"] > batches


def test_an_activation_ends_what_lay_on_the_release_before(gateway: Overlaid) -> None:
    gateway.serve(10 * SIZE, label=True)
    laid = gateway.lay()
    gateway.seen()
    gateway.activate(NEXT, 2)
    gateway.seen()
    assert (gateway.place.weights, gateway.place.overlay, gateway.place.overlays) == (NEXT, "", ())
    batches = gateway.watch.standing.batches.get("loss-level", 0)
    gateway.wrong(2 * SIZE, laid)
    assert gateway.watch.standing.batches.get("loss-level", 0) == batches


def test_however_often_swaps_are_wanted_half_of_the_batches_are_judged_in_full(gateway: Overlaid) -> None:
    in_part = swaps = 0
    for _ in range(200):
        if gateway.watch.may_swap:
            gateway.lay()
            gateway.seen()
            swaps += 1
            assert not gateway.watch.may_swap
        gateway.serve(SIZE)
        in_part += gateway.learning > 0
    assert swaps >= 3
    assert in_part <= 100


def test_right_predictions_of_an_overlay_are_counted_as_its_own(gateway: Overlaid) -> None:
    counts = gateway.parts.counts
    for digest, release in ((OWN, None), ("1" * 64, OWN)):
        if release is not None:
            counts.overlaid(digest, release, 5)
            counts.overlaid(digest, release, 5)
        batch, made = served_of(gateway.bundle, gateway.first, *_right(4), digest)
        gateway.first += 4
        gateway.parts.store.add(replace(batch, holdouts=[True] * 4), made, 0.0)
        counts.add(gateway.parts.store.label(labelled(gateway.first - 4, np.zeros(4, np.int64)), 0.0))
    told = {event.weights: event for event in counts.dirty()}
    assert (told[OWN].release, told[OWN].overlay_batches) == (None, 0)
    assert (told["1" * 64].release, told["1" * 64].overlay_batches) == (OWN, 5)
    assert all(isinstance(event, CountsEvent) and event.buckets[0].right == 4 for event in told.values())


def _right(count: int) -> tuple[np.ndarray, np.ndarray]:
    outputs = np.zeros((count, 3), np.float32)
    outputs[:, 0] = 9.0
    return np.zeros((count, 4), np.float32), outputs


STEPS = ("serve", "moved", "label", "wrong", "lay", "off", "worse", "activate", "kill")


@settings(deadline=None, max_examples=8)
@given(st.lists(st.sampled_from(STEPS), min_size=4, max_size=10))
def test_in_any_order_the_standing_is_about_what_serves_and_only_an_activation_closes_a_flag(
    whole: Bundle, steps: list[str]
) -> None:
    with TemporaryDirectory() as folder:
        one = Overlaid(Path(folder), whole, rules_of(whole, label_free="always"))
        laid: set[str] = set()
        for number, step in enumerate(steps):
            flag, flags = one.place.flag, one.watch.firings
            _do(one, step, number)
            active, place = one.parts.active, one.place
            assert (place.weights, place.overlay) == (active.weights, active.overlay.digest if active.overlay else "")
            laid = set() if step == "activate" else laid | ({place.overlay} - {""})
            assert set(place.overlays) <= laid - set(active.disowned)
            assert one.watch.firings >= flags
            assert step == "activate" or flag is None or place.flag is not None
            stored = json.loads(one.parts.agent_db.query("SELECT place FROM watch WHERE name = 'watch'")[0][0])
            assert (stored["weights"], stored["overlay"]) == (place.weights, place.overlay)
        one.parts.close()


def _do(one: Overlaid, step: str, number: int) -> None:
    if step in ("serve", "moved", "label"):
        one.serve(2 * SIZE, moved=SHIFT if step == "moved" else 0.0, label=step == "label")
        return
    if step == "wrong":
        one.wrong(2 * SIZE, one.weights)
        return
    if step == "kill":
        one.restart()
    elif step == "activate":
        one.activate(f"{number:x}".rjust(64, "e"), number)
    elif step == "lay":
        one.lay()
    else:
        one.take_off(worse=step == "worse")
    one.seen()
