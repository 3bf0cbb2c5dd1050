"""A look at the stream between rounds: what is followed, what judges, what is left for the next time."""

import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from edge_agent.errors import DataError
from edge_agent.link.database import Database, open_database
from edge_agent.model.bundle import Bundle
from edge_agent.model.head import head_of
from edge_agent.samples.record import Label, SampleBatch
from edge_agent.samples.store import SampleStore
from edge_agent.serving.server import Served
from edge_agent.training.adaptation import Followed, follow
from edge_agent.training.held_out import LEAST_SAMPLES
from edge_agent.training.job import AdaptationJob
from edge_agent.training.lost_classes import Evidence
from edge_agent.training.overlay_file import SavedOverlay, decode_overlay
from edge_agent.training.suited import unsuited
from edge_agent.training.supervisor import TrainingSupervisor
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.manifest import TensorSpec
from edge_agent.wire.tensors import encode_weights
from tests.training.label_free_bundle import CLASSES, FEATURES, gaussian, label_free_bundle
from tests.training.tiny_bundle import tiny_bundle

INPUTS = [TensorSpec(name="x", dtype="float32", shape=["batch", FEATURES])]
UNEVEN = np.array([0.95, 0.03, 0.02])


@pytest.fixture(scope="module")
def adaptable(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return label_free_bundle(tmp_path_factory.mktemp("followed") / "net")


class Stream:
    """Samples in a store; every fifth is holdout and labelled, unless told otherwise."""

    def __init__(
        self,
        path: Path,
        *,
        moved: float = 1.2,
        shares: np.ndarray | None = None,
        room: int = 10_000,
        wait_s: float = 1e6,
    ) -> None:
        self.path, self.count, self.moved, self.shares, self.room, self.wait_s = path, 0, moved, shares, room, wait_s

    def comes(self, count: int, *, labels: bool = True) -> None:
        features, truth = gaussian(count, self.count, self.shares, self.moved)
        ids = [f"s{self.count + row}" for row in range(count)]
        held = [row % 5 == 0 for row in range(count)]
        with closing(open_database(self.path, synchronous="NORMAL")) as db:
            store = self._store(db)
            times = [float(self.count + row) for row in range(count)]
            served = Served(np.zeros((count, CLASSES), np.float32), "a" * 64, "b" * 64, 1, "root")
            store.add(SampleBatch(ids, times, dict(features), holdouts=held), served, now_s=float(self.count))
            if labels:
                told = [Label(name, int(value)) for name, value, out in zip(ids, truth, held, strict=True) if out]
                store.label(told, now_s=float(self.count))
        self.count += count

    def label(self, name: str) -> None:
        with closing(open_database(self.path, synchronous="NORMAL")) as db:
            self._store(db).label([Label(name, 0)], now_s=float(self.count))

    def _store(self, db: Database) -> SampleStore:
        return SampleStore(
            db,
            inputs=INPUTS,
            classes=CLASSES,
            proof_share=0.0,
            max_samples=self.room,
            label_wait_s=self.wait_s,
            unlabelled_samples=500,
        )


def _job(bundle: Bundle, samples: Path, **changes: object) -> AdaptationJob:
    fields: dict[str, object] = {
        "command_id": "between-rounds",
        "duration_s": 120.0,
        "bundle_dir": bundle.path,
        "bundle": bundle.digest,
        "weights_file": bundle.path / "weights.safetensors",
        "weights": "a" * 64,
        "samples_db": samples,
        "max_samples": 2000,
        "training_graph": "entropy-sgd",
        "minimum": 0.02,
        "maximum": 0.2,
        "farthest": 0.5,
        "batch_size": 40,
    }
    return AdaptationJob.model_validate({**fields, **changes})


def _kept(followed: Followed, path: Path) -> SavedOverlay:
    assert followed.overlay is not None
    path.write_bytes(followed.overlay)
    return decode_overlay(followed.overlay)


def test_it_begins_with_the_newest_batch_and_goes_on_with_whole_ones(tmp_path: Path, adaptable: Bundle) -> None:
    stream, kept, release = Stream(tmp_path / "samples.db"), tmp_path / "followed.bin", adaptable.initial_weights()
    stream.comes(200)
    first = _kept(follow(_job(adaptable, stream.path), adaptable, release), kept)
    assert (first.batches, first.last) == (1, "s199")
    stream.comes(120)
    following = follow(_job(adaptable, stream.path, overlay_file=kept), adaptable, release)
    second = _kept(following, kept)
    assert (following.metrics["batches-anew"], second.batches, second.first) == (2, 3, first.first)
    assert second.digest != first.digest == sha256_hex(encode_weights(first.weights()))
    again = follow(_job(adaptable, stream.path, overlay_file=kept), adaptable, release)
    assert again.overlay == second.encode()  # 16 samples of the train part wait, and nothing else came
    assert again.metrics["batches-anew"] == again.metrics["judged-anew"] == 0


def test_labels_since_it_began_judge_and_those_that_are_new_are_counted(tmp_path: Path, adaptable: Bundle) -> None:
    stream, kept, release = Stream(tmp_path / "samples.db"), tmp_path / "followed.bin", adaptable.initial_weights()
    stream.comes(300)
    for number in range(12):
        stream.comes(50)
        job = _job(adaptable, stream.path, **({"overlay_file": kept} if number else {}))
        done = follow(job, adaptable, release)
        _kept(done, kept)
    assert done.metrics["proof-examples"] >= 100
    assert done.metrics["judged-anew"] == 10
    assert done.metrics["proof-accuracy-after"] > done.metrics["proof-accuracy-before"] + 0.02
    assert not done.metrics["made-worse"]


def test_labels_judge_on_when_the_first_sample_followed_has_left_the_store(tmp_path: Path, adaptable: Bundle) -> None:
    """At 100 Hz the store's newest samples are those of a few minutes."""
    stream, kept = Stream(tmp_path / "samples.db", room=200), tmp_path / "followed.bin"
    release = adaptable.initial_weights()
    stream.comes(100)
    first = _kept(follow(_job(adaptable, stream.path), adaptable, release), kept).first
    for _ in range(3):
        stream.comes(150)
        done = follow(_job(adaptable, stream.path, overlay_file=kept), adaptable, release)
        assert _kept(done, kept).first == first
        assert done.metrics["proof-examples"] >= 30
        assert done.metrics["judged-anew"] >= 29


@pytest.mark.parametrize("labelled", [True, False])
def test_older_samples_that_are_kept_for_want_of_labels_are_not_followed_again(
    tmp_path: Path, adaptable: Bundle, labelled: bool
) -> None:
    """Between two looks more comes than the store holds; the last sample followed has left it, or is kept as old."""
    stream, kept = Stream(tmp_path / "samples.db", room=200, wait_s=50.0), tmp_path / "followed.bin"
    release = adaptable.initial_weights()
    stream.comes(400)
    last = _kept(follow(_job(adaptable, stream.path), adaptable, release), kept).last
    for _ in range(3):
        if labelled:
            stream.label(last)
        for _ in range(4):
            stream.comes(100)
        done = follow(_job(adaptable, stream.path, overlay_file=kept), adaptable, release)
        last = _kept(done, kept).last
        anew = 4 if labelled else 8  # of 160 samples of the train part that are recent, of 320 that came and are kept
        assert done.metrics["batches-anew"] == anew


def test_an_overlay_that_labels_find_worse_is_not_left(tmp_path: Path, adaptable: Bundle) -> None:
    """The shares of the classes move and it is told that they do not: entropy trains the shift away."""
    stream, kept = Stream(tmp_path / "samples.db", moved=0.0, shares=UNEVEN), tmp_path / "followed.bin"
    harm = {"minimum": 1.0, "maximum": 1.0, "steps": 5}
    release = adaptable.initial_weights()
    stream.comes(100, labels=False)
    _kept(follow(_job(adaptable, stream.path, **harm), adaptable, release), kept)
    stream.comes(500)
    done = follow(_job(adaptable, stream.path, overlay_file=kept, **harm), adaptable, release)
    assert (done.overlay, done.metrics["made-worse"]) == (None, 1)
    assert done.metrics["proof-accuracy-after"] < done.metrics["proof-accuracy-before"]


def test_too_little_leaves_nothing(tmp_path: Path, adaptable: Bundle) -> None:
    stream = Stream(tmp_path / "samples.db")
    stream.comes(30)
    done = follow(_job(adaptable, stream.path), adaptable, adaptable.initial_weights())
    assert (done.overlay, done.metrics["batches"]) == (None, 0)


def test_steps_that_would_overflow_leave_the_release_as_it_is(tmp_path: Path, adaptable: Bundle) -> None:
    """The graph's own guard skips them; what overflowed all the same the adapter gives up (`went-back`)."""
    stream, release = Stream(tmp_path / "samples.db", moved=1e6), adaptable.initial_weights()
    stream.comes(100)
    done = follow(_job(adaptable, stream.path, minimum=1e16, maximum=1e16, farthest=1e30), adaptable, release)
    assert done.overlay is not None
    left = decode_overlay(done.overlay).weights()
    assert all(np.array_equal(left[name], release[name]) for name in release)
    assert done.metrics["distance"] == 0.0


def test_the_worker_process_follows_and_leaves_its_file(tmp_path: Path, adaptable: Bundle) -> None:
    stream = Stream(tmp_path / "samples.db")
    stream.comes(200)
    digest = sha256_hex((adaptable.path / "weights.safetensors").read_bytes())
    worker = TrainingSupervisor(tmp_path / "work")
    worker.start(_job(adaptable, stream.path, weights=digest))
    deadline_s = time.monotonic() + 60
    while (outcome := worker.poll()) is None and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert outcome is not None
    assert outcome.ok, outcome
    assert outcome.overlay is not None
    here = follow(_job(adaptable, stream.path), adaptable, adaptable.initial_weights())
    assert outcome.overlay.read_bytes() == here.overlay
    assert outcome.metrics["batches"] == 1


@pytest.mark.parametrize("place", [0, 31, 32, 40, -1])
def test_a_bit_that_flipped_is_found(tmp_path: Path, adaptable: Bundle, place: int) -> None:
    whole = SavedOverlay("a" * 64, 3, "s0", "s9", None, {"looks": 1}, b"\0" * 100).encode()
    assert decode_overlay(whole).encode() == whole
    damaged = bytearray(whole)
    damaged[place] ^= 1
    for spoilt in (bytes(damaged), whole[:-1], b""):
        with pytest.raises(DataError, match="overlay's file"):
            decode_overlay(spoilt)


def test_looks_add_up_where_none_of_them_shows_it_alone(tmp_path: Path, adaptable: Bundle) -> None:
    """The evidence of looks before is nearly enough; the next one, whose losses are noise to it alone, completes it."""
    kept, release = tmp_path / "f.bin", adaptable.initial_weights()
    stream = Stream(tmp_path / "samples.db", moved=0.0, shares=UNEVEN)  # what is followed goes to equal shares
    rates = {"minimum": 1.0, "maximum": 1.0, "steps": 5}
    stream.comes(40 * 5, labels=False)
    begun = _kept(follow(_job(adaptable, stream.path, **rates), adaptable, release), kept)
    assert begun.evidence == Evidence.none(CLASSES).to_json()
    stream.comes(40)
    first = follow(_job(adaptable, stream.path, overlay_file=kept, **rates), adaptable, release)
    assert first.metrics["proof-examples"] < LEAST_SAMPLES
    assert first.overlay is not None
    assert not first.metrics["made-worse"]
    assert first.metrics["proof-accuracy-after"] < first.metrics["proof-accuracy-before"]
    nearly = replace(begun, evidence={"looks": [9] * 4, "capital": [[0.0] * 5] * 3 + [[15.0] * 5]})
    kept.write_bytes(nearly.encode())
    found = follow(_job(adaptable, stream.path, overlay_file=kept, **rates), adaptable, release)
    assert found.metrics["made-worse"] == 1
    assert found.overlay is None


def test_a_graph_of_the_head_follows_as_the_same_subset_of_the_whole(tmp_path: Path, adaptable: Bundle) -> None:
    stream, release = Stream(tmp_path / "samples.db"), adaptable.initial_weights()
    stream.comes(200)
    assert unsuited(adaptable, "entropy-head-sgd") is None
    made = _kept(
        follow(_job(adaptable, stream.path, training_graph="entropy-head-sgd"), adaptable, release), tmp_path / "f.bin"
    ).weights()
    head = set(head_of(adaptable.manifest).trainable)
    assert {name for name, value in made.items() if not np.array_equal(value, release[name])} == head
    following = _job(adaptable, stream.path, overlay_file=tmp_path / "f.bin", training_graph="entropy-head-sgd")
    stream.comes(200)
    again = follow(following, adaptable, release)
    assert again.metrics["batches"] == 5


def test_what_cannot_be_followed_is_named(tmp_path: Path, adaptable: Bundle) -> None:
    assert unsuited(adaptable, "entropy-sgd") is None
    assert "takes labels" in (unsuited(adaptable, "sgd") or "")
    assert "no training graph 'entropy-sgd'" in (unsuited(tiny_bundle(tmp_path / "tiny"), "entropy-sgd") or "")
    assert "takes labels" in (unsuited(adaptable, "head-sgd") or "")
