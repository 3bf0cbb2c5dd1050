"""Following between rounds: the overlay helps or goes, and every way back ends at the release, bit for bit."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.errors import ConfigError, DataError
from edge_agent.model.bundle import Bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.ota.activation import slot_of
from edge_agent.ota.slot import Slot
from edge_agent.ota.startup import startup
from edge_agent.runtime.adaptation_status import ADAPTATION_KEY, AdaptationStatus, adaptation_lines
from edge_agent.runtime.adaptation_work import FOLLOWED_FILE
from edge_agent.training.overlay_file import decode_overlay
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.tensors import Weights, encode_weights
from tests.runtime.following import Site
from tests.training.label_free_bundle import gaussian, label_free_bundle

UNEVEN = np.array([0.95, 0.03, 0.02])
HARM: dict[str, object] = {"eta_min": 1.0, "eta_max": 1.0, "steps": 5, "farthest": 0.5}


@pytest.fixture(scope="module")
def adaptable(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return label_free_bundle(tmp_path_factory.mktemp("following") / "net")


@pytest.fixture
def site(tmp_path: Path, adaptable: Bundle) -> Iterator[Site]:
    one = Site(tmp_path, adaptable)
    yield one
    one.close()


def _overlaid(site: Site) -> str:
    site.serve(64)
    site.later()
    assert site.laid is not None, site.adaptation.status
    return site.laid


def _moved(weights: Weights, by: float) -> Weights:
    return {name: value + np.float32(by) for name, value in weights.items()}


def test_on_a_stream_whose_features_move_more_is_right_than_with_the_release(tmp_path: Path, adaptable: Bundle) -> None:
    shares = {}
    for online in (False, True):
        folder = tmp_path / str(online)
        folder.mkdir()
        site, right = Site(folder, adaptable), []
        for _ in range(25):
            right.append(site.serve(64, moved=1.2))
            if online:
                site.later()
        shares[online] = float(np.mean(right[5:]))
        site.close()
    assert shares[True] > shares[False] + 0.02, shares


def test_an_overlay_that_harms_is_taken_off_by_labels_and_the_stream_rests(tmp_path: Path, adaptable: Bundle) -> None:
    site = Site(tmp_path, adaptable, HARM)
    before = site.predicted()
    site.serve(64, moved=0.0, shares=UNEVEN, labels=False)
    site.later()
    harmful = site.laid
    assert harmful is not None
    site.serve(400, moved=0.0, shares=UNEVEN)
    site.later()
    assert site.laid is None
    assert np.array_equal(site.predicted(), before)
    assert site.server.active.disowned == (harmful,)
    status = site.adaptation.status
    assert (status.state, status.dropped) == ("rests", {"worse": 1})
    assert "worse: on" in status.why
    assert site.told[0].startswith("the overlay was taken off, worse: on")
    started = site.worker.started
    site.serve(64, moved=0.0, shares=UNEVEN)
    site.later()
    assert site.worker.started == started
    site.later(100)
    assert site.worker.started == started + 1
    site.close()


def test_one_that_labels_find_worse_before_it_serves_never_does(tmp_path: Path, adaptable: Bundle) -> None:
    site = Site(tmp_path, adaptable, HARM)
    site.monitors_let = False
    site.serve(64, moved=0.0, shares=UNEVEN, labels=False)
    site.later()
    site.monitors_let = True
    site.serve(400, moved=0.0, shares=UNEVEN)
    site.later()
    assert (site.laid, site.adaptation.status.laid, site.told) == (None, 0, [])
    assert site.adaptation.status.dropped == {"worse": 1}
    site.close()


def test_without_labels_it_serves_for_the_time_that_was_set_and_then_only_if_some_come(site: Site) -> None:
    before = site.predicted()
    began_s = site.now_s
    while site.now_s - began_s < 120 and (site.laid is not None or site.now_s < 12):
        site.serve(64, labels=False)
        site.later()
    assert 100 < site.now_s - began_s <= 130
    assert np.array_equal(site.predicted(), before)
    assert site.told == ["the overlay was taken off, unjudged: no labels judged it within 100 s"]
    for _ in range(5):
        site.serve(64, labels=False)
        site.later()
    assert (site.laid, site.adaptation.status.why) == (None, "no labels have judged what is followed yet")
    for _ in range(3):
        site.serve(64)
        site.later()
    assert site.laid is not None


def test_no_more_is_laid_in_an_hour_than_may_be_nor_before_the_monitors_have_judged(
    tmp_path: Path, adaptable: Bundle
) -> None:
    site = Site(tmp_path, adaptable, {"max_swaps_per_hour": 2})
    for number in range(6):
        site.monitors_let = number != 1
        site.serve(64)
        site.later()
        assert site.adaptation.status.laid == (1, 1, 2, 2, 2, 2)[number]
    assert site.adaptation.status.why == "as many overlays were laid this hour as may be"
    site.close()


def test_a_round_goes_first(site: Site) -> None:
    site.serve(64)
    site.busy = True
    site.later()
    assert site.worker.started == 0
    site.busy = False
    site.now_s += 11
    site.adaptation.look()
    site.busy = True
    site.adaptation.look()
    assert (site.worker.busy, site.laid) == (False, None)


def test_a_flag_brings_the_judgement_forward(site: Site) -> None:
    _overlaid(site)
    started = site.worker.started
    site.later(1)
    assert site.worker.started == started
    site.flags = 1
    site.later(1)
    assert site.worker.started == started + 1


def test_a_worker_that_is_killed_leaves_what_serves_and_is_put_off(site: Site) -> None:
    laid = _overlaid(site)
    site.worker.fails = True
    for _ in range(2):
        site.serve(64)
        site.later()
    assert (site.laid, site.worker.started) == (laid, 2)
    assert "crashed" in site.adaptation.status.problem
    site.worker.fails = False
    site.later(40)
    assert (site.worker.started, site.adaptation.status.problem) == (3, "")
    site.worker.fails = True
    site.later(20)
    site.later(95)
    assert site.adaptation.status.dropped == {"unjudged": 1}, "what nobody can judge any more does not serve on"


@pytest.mark.parametrize("damage", ["flipped", "gone"])
def test_a_damaged_file_of_what_was_followed_brings_the_release_back(site: Site, damage: str) -> None:
    before = site.predicted()
    _overlaid(site)
    path = site.path / "adaptation" / FOLLOWED_FILE
    if damage == "gone":
        path.unlink()
    else:
        spoilt = bytearray(path.read_bytes())
        spoilt[len(spoilt) // 2] ^= 1
        path.write_bytes(spoilt)
    site.serve(64)
    site.later()
    assert (site.laid, site.adaptation.status.dropped) == (None, {"damaged": 1})
    assert np.array_equal(site.predicted(), before)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_folder_in_the_place_of_that_file_stops_nothing(site: Site, restarts: bool) -> None:
    before = site.predicted()
    _overlaid(site)
    path = site.path / "adaptation" / FOLLOWED_FILE
    path.unlink()
    path.mkdir()
    (path / "in the way").write_text("x")
    after = site.restarted() if restarts else site
    after.serve(64)
    after.later()
    if not restarts:
        assert (after.laid, after.adaptation.status.dropped) == (None, {"damaged": 1})
    assert np.array_equal(after.predicted(), before) == (after.laid is None)
    after.serve(64)
    after.later(200)
    assert after.laid is not None
    assert path.is_file()
    if restarts:
        after.close()


def test_a_disk_that_refuses_costs_following_and_no_service(site: Site) -> None:
    laid = _overlaid(site)
    folder = site.path / "adaptation"
    aside = folder.with_name("aside")
    folder.rename(aside)
    folder.write_text("no folder")
    site.serve(64)
    site.later()
    assert site.laid is None, "its file cannot be read: what nobody can check is not served on"
    assert laid
    folder.unlink()
    aside.rename(folder)
    site.serve(64)
    site.later(200)
    assert site.laid is not None


def test_a_kill_comes_up_with_the_release_and_forgets_what_was_followed(site: Site) -> None:
    before = site.predicted()
    _overlaid(site)
    again = site.restarted()
    assert again.laid is None
    assert np.array_equal(again.predicted(), before)
    again.later(1)
    assert not (again.path / "adaptation" / FOLLOWED_FILE).exists()
    again.close()


def test_a_round_can_only_begin_from_a_release(site: Site) -> None:
    """Orders name weights by digest, and the gateway's store of them has no overlay."""
    laid = _overlaid(site)
    assert site.store.find_weights(laid) is None
    assert site.store.find_weights(site.slot.weights) is not None
    assert startup(site.store).slot == site.slot


def test_what_cannot_be_followed_is_refused_at_the_start_with_the_way_out(tmp_path: Path, adaptable: Bundle) -> None:
    with pytest.raises(ConfigError, match=r"online = true.*takes labels") as refused:
        Site(tmp_path, adaptable, {"graph": "sgd"})
    assert "--label-free" in (refused.value.hint or "")


def test_status_is_told_for_people(site: Site) -> None:
    assert list(adaptation_lines({ADAPTATION_KEY: AdaptationStatus().to_document()})) == []
    laid = _overlaid(site)
    lines = list(adaptation_lines({ADAPTATION_KEY: site.adaptation.status.to_document()}))
    assert lines[0] == "adaptation: overlaid"
    assert lines[1].startswith(f"overlay {laid[:12]}: 1 batches, ")
    assert "overlays laid: 1" in lines


STEPS = ("serve", "unlabelled", "later", "later", "activate", "revert", "kill", "crash", "damage", "busy", "monitors")


@settings(deadline=None, max_examples=10)
@given(st.lists(st.sampled_from(STEPS), min_size=5, max_size=16))
def test_in_any_order_what_serves_is_the_release_bit_for_bit_or_an_overlay_on_it(
    adaptable: Bundle, steps: list[str]
) -> None:
    with TemporaryDirectory() as folder:
        site = Site(Path(folder), adaptable)
        releases = {site.slot: adaptable.initial_weights()}
        expected = site.slot
        for number, step in enumerate(["serve", "later", *steps]):
            site, expected = _done(site, step, number, releases, expected)
            _check(site, releases, expected, farthest=0.2)
        site.close()


def _done(site: Site, step: str, number: int, releases: dict[Slot, Weights], expected: Slot) -> tuple[Site, Slot]:
    """The gateway after a step, and what must serve."""
    if step in ("serve", "unlabelled"):
        site.serve(64, labels=step == "serve")
    elif step == "later":
        site.serve(16)
        site.later(31)
    elif step == "activate":
        weights = _moved(site.bundle.initial_weights(), 0.01 * (number + 1))
        expected = site.activate(weights, number + 2)
        releases[expected] = weights
        assert site.laid is None, "in the same step"
    elif step == "revert":
        expected = next(iter(releases))
        site.server.swap(
            site.server.prepare(site.bundle, releases[expected], expected.weights, expected.version, "root")
        )
        site.store.point(site.store.pointer().activated(expected).committed())
        assert site.laid is None, "in the same step"
    elif step == "kill":
        site = site.restarted()
        assert site.laid is None
    elif step == "crash":
        site.worker.fails = not site.worker.fails
    elif step == "damage":
        path = site.path / "adaptation" / FOLLOWED_FILE
        if path.exists():
            path.write_bytes(path.read_bytes()[:-1])
    elif step == "busy":
        site.busy = not site.busy
    else:
        site.monitors_let = not site.monitors_let
    return site, expected


def _check(site: Site, releases: dict[Slot, Weights], expected: Slot, *, farthest: float) -> None:
    assert site.slot == slot_of(site.server.release) == expected
    weights, overlay = releases[expected], site.server.active.overlay
    if overlay is not None:
        assert overlay.release == site.slot.weights
        path = site.path / "adaptation" / FOLLOWED_FILE
        try:
            followed = decode_overlay(path.read_bytes())
        except DataError:
            return  # damaged on purpose, and not looked at yet
        if followed.digest != overlay.digest:
            return  # the stream was followed farther, and that may not be laid yet
        made = followed.weights()
        assert sha256_hex(encode_weights(made)) == overlay.digest
        length = np.sqrt(sum(float(np.square(value, dtype=np.float64).sum()) for value in weights.values()))
        away = np.sqrt(sum(float(np.square(made[name] - weights[name], dtype=np.float64).sum()) for name in weights))
        assert away <= farthest * length * (1 + 1e-5)
        weights = made
    x = gaussian(16, 4242)[0]
    assert np.array_equal(site.predicted(), InferenceModel(site.bundle, weights).predict(x))
