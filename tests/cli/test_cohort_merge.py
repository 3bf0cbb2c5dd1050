"""``server-bridge cohorts merge``, as typed, on a founded fleet's folder; with a running bridge: tests/bridge."""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from edge_agent.errors import ConfigError
from server_bridge.cli.commands import app
from server_bridge.folder_lock import lock_folder
from server_bridge.releases.provision import init_fleet
from server_bridge.releases.record import FileReleaseBook
from server_bridge.rounds.lineage import Moment, record_round
from server_bridge.store.adaptations import RUNNING, Adaptation
from server_bridge.store.store import Store, store_url
from tests.training.tiny_bundle import tiny_bundle

NAMES = {1: "g1", 2: "g2", 3: "g3"}
MEMBERS = {"g1": "c1", "g2": "c2", "g3": "c2"}
COHORTS = ("root", "c1", "c2")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A fleet whose running adaptation has parted its gateways into c1 and c2."""
    bundle = tiny_bundle(tmp_path / "tiny")
    init_fleet(tmp_path / "bridge", bundle.path, "plant")
    store = Store(store_url(tmp_path / "bridge"), tmp_path / "bridge" / "blobs")
    for node, gateway in NAMES.items():
        store.gateways.register(gateway, node, 0.0)
    adaptation = Adaptation("a1", bundle.digest, "clma", RUNNING, 5, 1, 0, 1.0, None, "", {}, None)
    store.adaptations.begin(adaptation)
    record_round(store.lineage, Moment(bundle.digest, "a1", 1, 2.0), [], NAMES, MEMBERS, COHORTS)
    store.close()
    return tmp_path / "bridge"


@pytest.fixture
def running(folder: Path) -> Iterator[Path]:
    """The same, with a bridge's lock on it."""
    lock = lock_folder(folder)
    yield folder
    os.close(lock)


def _typed(folder: Path, *words: str) -> str:
    done = CliRunner().invoke(app, ["cohorts", *words, "-c", str(folder / "bridge.toml")], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def _refused(folder: Path, problem: str, *words: str) -> str:
    with pytest.raises(ConfigError, match=re.escape(problem)) as caught:
        _typed(folder, "merge", *words)
    return caught.value.hint


def test_in_the_middle_of_an_adaptation_it_is_queued_and_every_view_says_so(running: Path) -> None:
    told = _typed(running, "merge", "c2", "c1", "--why", "alike again", "--by", "ann")
    assert told.startswith("queued: cohort c2 goes into c1 when adaptation a1 has ended, which is at round 2 of 5")
    asked = re.compile(r"cohort c2 is to go into c1 \(asked by ann at [0-9-]{10} [0-9:]{8}: alike again\): it waits")
    assert asked.search(_typed(running))
    assert asked.search(_typed(running, "explain", "g3"))
    assert not asked.search(_typed(running, "explain", "g1"))
    (request,) = json.loads(_typed(running, "--json"))["merges"]
    assert (request["gone"], request["kept"], request["status"], request["why"]) == (
        "c2",
        "c1",
        "queued",
        "alike again",
    )
    log = CliRunner().invoke(app, ["log", "-c", str(running / "bridge.toml")], catch_exceptions=False).output
    assert "cohorts: merge-asked: ann asked that cohort c2 go into c1: alike again" in log
    hint = _refused(running, "cohort 'c2' is to go into 'c1' already", "c2", "root")
    assert "asked by ann" in hint


def test_while_the_bridge_is_stopped_it_is_queued_for_its_start(folder: Path) -> None:
    told = _typed(folder, "merge", "c2", "root")
    assert told.startswith("queued: cohort c2 goes into root when the bridge is started, which does not run now")


def test_a_cohort_that_is_not_there_itself_and_the_root_are_refused_and_nothing_is_queued(folder: Path) -> None:
    assert "`server-bridge cohorts` lists" in _refused(folder, "there is no cohort 'c7'", "c7", "c1")
    _refused(folder, "there is no cohort 'c7'", "c1", "c7")
    _refused(folder, "cohort 'c1' cannot go into itself", "c1", "c1")
    _refused(folder, "the root cohort goes into no other", "root", "c1")
    _refused(folder, "--why is not one line", "c2", "c1", "--why", "two\nlines")
    _refused(folder, "--by is not one line", "c2", "c1", "--by", "a" * 65)
    assert json.loads(_typed(folder, "--json"))["merges"] == []


def test_of_a_cohort_that_has_ended_it_is_told_how(folder: Path) -> None:
    store = Store(store_url(folder), folder / "blobs")
    bundle = store.lineage.cohorts()[0].bundle
    store.lineage.end(bundle, "c1", "returned", 3.0, "a1", 2, "c2")
    store.close()
    assert "cohort c1 ended: returned into c2" in _refused(folder, "there is no cohort 'c1'", "c2", "c1")


def test_cohorts_of_two_bundles_are_not_mixed(folder: Path) -> None:
    store = Store(store_url(folder), folder / "blobs")
    (running,) = store.adaptations.all()
    store.adaptations.end("a1", "done", "released", 3.0)
    other = replace(running, id="a2", bundle="e" * 64)
    store.adaptations.begin(other)
    record_round(store.lineage, Moment(other.bundle, "a2", 1, 4.0), [], NAMES, {"g1": "c4"}, ("root", "c4"))
    store.close()
    latest = FileReleaseBook(folder / "releases").latest()
    assert latest is not None
    record, release_map = latest
    (root,) = record.cohorts
    cohorts = [root, root.model_copy(update={"cohort": "c3"})]
    newer = record.model_copy(update={"number": record.number + 1, "cohorts": cohorts})
    FileReleaseBook(folder / "releases").add(newer, release_map)
    _refused(folder, "cohorts 'c4' and 'c3' are of different bundles", "c4", "c3")
