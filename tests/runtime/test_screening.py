"""The fault screen beside the recorder: what is stored, what is told, and what outlives a kill or a full disk."""

import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_agent.drift.faults import calibrate
from edge_agent.drift.observed import Observed
from edge_agent.drift.reference import Reference
from edge_agent.errors import StorageError
from edge_agent.model.bundle import Bundle
from edge_agent.runtime.packing import encoded
from edge_agent.runtime.pipeline import Recordable
from edge_agent.runtime.recorder import Recorder
from edge_agent.runtime.screen import Screen, screen_of
from edge_agent.runtime.screening import MOST_OPEN, Screening
from edge_agent.samples.record import Label, SampleBatch
from edge_agent.serving.server import Served
from edge_agent.wire.messages import SensorFaultEvent
from tests.drift.faults.sensors import manifest_of, params_of
from tests.runtime.bench import GATEWAY, Parts, deny, permit, served
from tests.training.tiny_bundle import FEATURES

ROWS, BATCH = 40, 8
STUCK = 3


@pytest.fixture(scope="module")
def screen() -> Screen:
    return Screen(params_of(np.random.default_rng(0).normal(size=(500, FEATURES))), ("x",))


@pytest.fixture
def parts(tmp_path: Path, bundle: Bundle, screen: Screen) -> Iterator[Parts]:
    one = Parts(tmp_path, bundle, screen=screen)
    yield one
    one.close()


def stream(rows: int = 400, *, begin: int = 100, end: int = 300, seed: int = 1) -> NDArray[np.float32]:
    """Readings as in the reference; one sensor stands still for a while."""
    x = np.random.default_rng(seed).normal(size=(rows, FEATURES)).astype(np.float32)
    x[begin:end, STUCK] = x[begin, STUCK]
    return x


def batch_of(x: NDArray[np.float32], first: int) -> SampleBatch:
    ids = [f"s{first + row}" for row in range(len(x))]
    return SampleBatch(ids, [float(first + row) for row in range(len(x))], {"x": x})


def recorder(parts: Parts) -> Recorder:
    return Recorder(
        queue.Queue(),
        parts.server,
        parts.samples_db,
        parts.store,
        parts.counts,
        parts.watch,
        parts.screening,
        parts.outbox,
        flagged=lambda: None,
        counts_interval_s=3600.0,
    )


def play(parts: Parts, x: NDArray[np.float32], start: int = 0, stop: int | None = None) -> None:
    """Through the recorder's own steps, in batches, each with its labels."""
    one = recorder(parts)
    for first in range(start, len(x) if stop is None else stop, BATCH):
        batch = batch_of(x[first : first + BATCH], first)
        labels = [Label(name, 0) for name in batch.ids]
        one._take([Recordable(batch, served(parts.bundle, [False] * len(batch.ids)), labels)])


def look(screening: Screening, x: NDArray[np.floating[Any]], first: float) -> None:
    ids = [f"s{first + row}" for row in range(len(x))]
    screening.look(SampleBatch(ids, [first + row for row in range(len(x))], {"x": x}), "b" * 64)
    screening.committed()
    screening.tell()


def faults(parts: Parts) -> list[SensorFaultEvent]:
    return [body for body in parts.events() if isinstance(body, SensorFaultEvent)]


def test_broken_readings_are_stored_and_monitored_and_not_trained_on(parts: Parts) -> None:
    x = stream()
    play(parts, x)
    told = faults(parts)
    assert [(one.fault, one.sensor, one.until_s is None) for one in told] == [
        ("stuck", "x0[3]", True),
        ("stuck", "x0[3]", False),
    ]
    assert told[0].since_s == 100.0
    assert told[0].value == pytest.approx(float(x[100, STUCK]))
    assert told[0].fault_id == told[1].fault_id
    assert (told[0].open_faults, told[1].open_faults) == (1, 0)
    counts = parts.store.counts
    assert counts.samples == counts.labelled == len(x)
    trained = parts.store.training_set(None, 1000).features["x"]
    assert (trained[:, STUCK] == x[100, STUCK]).sum() <= 12
    assert parts.watch.cursor == len(x)
    assert parts.screening.open_faults == []
    assert 188 <= parts.screening.faulty_samples <= 300


def test_a_kill_anywhere_tells_and_keeps_the_same(tmp_path: Path, bundle: Bundle, screen: Screen) -> None:
    x = stream()
    whole = Parts(tmp_path, bundle, screen=screen)
    play(whole, x)
    expected, stored = faults(whole), whole.screening._state
    assert stored is not None
    whole.close()
    for stop in (96, 104, 112, 200, 304, 360):
        folder = tmp_path / str(stop)
        folder.mkdir()
        one = Parts(folder, bundle, screen=screen)
        play(one, x, stop=stop)
        again = one.restarted()
        play(again, x, start=stop)
        told = dict.fromkeys((e.fault, e.since_s, e.until_s) for e in faults(again))  # one may be told twice
        assert list(told) == [(e.fault, e.since_s, e.until_s) for e in expected]
        state = again.screening._state
        assert state is not None
        assert {k: v.tobytes() for k, v in state.to_arrays().items()} == {
            k: v.tobytes() for k, v in stored.to_arrays().items()
        }
        again.close()


def test_what_the_samples_disk_refuses_is_screened_when_it_comes_again(parts: Parts) -> None:
    x = stream()
    play(parts, x, stop=96)
    before = parts.screening._kept
    deny(parts.samples_db, "screening", "UPDATE")
    with pytest.raises(StorageError):
        play(parts, x, 96, 104)
    assert parts.screening._kept is before
    permit(parts.samples_db, "screening", "UPDATE")
    play(parts, x, 96)
    assert [one.until_s is None for one in faults(parts)] == [True, False]


def test_what_the_outbox_refuses_is_told_later_even_by_the_next_process(parts: Parts) -> None:
    x = stream()
    play(parts, x, stop=96)
    deny(parts.agent_db, "outbox")
    with pytest.raises(StorageError):
        play(parts, x, 96, 160)
    again = parts.restarted()
    permit(again.agent_db, "outbox")
    play(again, x, 160)
    assert {(one.fault, one.until_s is None) for one in faults(again)} == {("stuck", True), ("stuck", False)}
    again.close()


def test_many_faults_at_once_are_told_up_to_a_number(tmp_path: Path, bundle: Bundle) -> None:
    many = 64
    reference = np.random.default_rng(0).normal(size=(300, many))
    screen = Screen(params_of(reference), ("x",))
    parts = Parts(tmp_path, bundle, screen=screen)
    for turn in range(40):
        look(parts.screening, np.full((1, many), np.nan), float(turn))
    told = faults(parts)
    assert len(told) == len(parts.screening.open_faults) == MOST_OPEN
    look(parts.screening, np.random.default_rng(1).normal(size=(200, many)), 40.0)
    told = faults(parts)
    assert len(told) == 2 * MOST_OPEN
    assert told[-1].open_faults == 0
    assert sum(one.untold for one in told) == many - MOST_OPEN
    parts.close()


def test_a_sensor_that_comes_and_goes_is_not_told_for_ever(tmp_path: Path, bundle: Bundle, screen: Screen) -> None:
    now = [0.0]
    parts = Parts(tmp_path, bundle)
    screening = Screening(
        parts.samples_db, parts.outbox, gateway=GATEWAY, screen_of=lambda digest: screen, monotonic=lambda: now[0]
    )
    rng = np.random.default_rng(2)

    def come_and_go(turn: int) -> None:
        lost = rng.normal(size=(16, FEATURES))
        lost[:, 0] = np.nan
        look(screening, lost, 96.0 * turn)
        look(screening, rng.normal(size=(80, FEATURES)), 96.0 * turn + 16)

    for turn in range(100):
        come_and_go(turn)
    begun = [one for one in faults(parts) if one.until_s is None]
    assert len(begun) == 20
    now[0] = 3600.0
    come_and_go(100)
    assert [one.untold for one in faults(parts)][-2:] == [80, 0]
    parts.close()


def test_another_bundle_begins_anew_and_ends_what_was_open(parts: Parts, bundle: Bundle) -> None:
    x = stream()
    play(parts, x, stop=200)
    assert len(parts.screening.open_faults) == 1
    made = served(bundle, [False] * BATCH)
    other = Served(made.outputs, "f" * 64, made.weights, made.version, made.cohort)
    one = recorder(parts)
    one._take([Recordable(batch_of(x[200:208], 200), other, [])])
    assert parts.screening.open_faults == []
    assert [event.until_s is None for event in faults(parts)] == [True, False]


def test_a_damaged_state_begins_anew(parts: Parts) -> None:
    play(parts, stream(), stop=200)
    for damage in (b"", b"x" * 50):
        with parts.samples_db.transaction():
            parts.samples_db.execute("UPDATE screening SET state = ?", (damage,))
        again = Screening(parts.samples_db, parts.outbox, gateway=GATEWAY, screen_of=lambda digest: parts.screen)
        assert again.open_faults == []


def test_a_state_of_an_earlier_version_begins_anew_and_ends_what_was_open(parts: Parts) -> None:
    play(parts, stream(), stop=200)
    broken = parts.screening.faulty_samples
    with parts.samples_db.transaction():
        parts.samples_db.execute("UPDATE screening SET state = ?", (encoded({"of another version": np.zeros(3)}),))
    parts.screening = Screening(parts.samples_db, parts.outbox, gateway=GATEWAY, screen_of=lambda digest: parts.screen)
    assert (parts.screening.open_faults, parts.screening.faulty_samples) == ([], broken)
    recorder(parts)._take([Recordable(batch_of(stream()[300:308], 300), served(parts.bundle, [False] * BATCH), [])])
    begun, ended = faults(parts)
    assert (begun.fault_id, begun.until_s, ended.until_s) == (ended.fault_id, None, begun.since_s)


def test_a_bundle_without_a_screen_is_served_without(tmp_path: Path, bundle: Bundle) -> None:
    assert screen_of(bundle) is None
    parts = Parts(tmp_path, bundle)
    x = stream()
    play(parts, x)
    assert faults(parts) == []
    assert len(parts.store.training_set(None, 1000).ids) == len(x)
    parts.close()


def test_a_batch_that_is_none_is_left_to_the_store(parts: Parts, bundle: Bundle) -> None:
    for batch in (
        SampleBatch([], [], {"x": np.zeros((0, FEATURES))}),
        SampleBatch(["a"], [1.0], {}),
        SampleBatch(["a"], [1.0, 2.0], {"x": np.zeros((1, FEATURES))}),
        SampleBatch(["a"], [1.0], {"x": np.zeros((1, FEATURES + 1))}),
    ):
        assert parts.screening.look(batch, bundle.digest) is batch


def test_two_inputs_are_seen_side_by_side(bundle: Bundle, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(300, 5))
    observed = Observed(["s"] * 300, np.arange(300.0), features, np.zeros((300, 1)))
    reference = Reference(observed, np.zeros(300), np.zeros(300), None, np.zeros(300, np.int64), (), ())
    screen = Screen(calibrate(reference, manifest_of([3], [2])), ("x0", "x1"))
    parts = Parts(tmp_path, bundle, screen=screen)
    x1 = rng.normal(size=(4, 2))
    x1[2, 1] = np.inf
    batch = SampleBatch(list("abcd"), [0.0, 1.0, 2.0, 3.0], {"x1": x1, "x0": rng.normal(size=(4, 3))})
    looked = parts.screening.look(batch, bundle.digest)
    assert looked.faulty is not None
    assert np.argwhere(looked.faulty).tolist() == [[2, 4]]
    parts.close()
