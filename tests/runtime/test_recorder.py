import queue
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from edge_agent.model.bundle import Bundle
from edge_agent.runtime.pipeline import QUEUE_BATCHES, Recordable
from edge_agent.runtime.recorder import Recorder
from edge_agent.samples.record import Label
from tests.runtime.bench import BATCH, Parts, deny, permit, samples, served
from tests.runtime.desk import wait

LOW, HIGH = [False] * BATCH, [True] * BATCH
NEVER_S = 3600.0


class Running:
    """A recorder over real stores."""

    def __init__(self, parts: Parts, *, counts_interval_s: float = NEVER_S) -> None:
        self.parts = parts
        self.queue: queue.Queue[Recordable] = queue.Queue(10_000)
        self.flagged = 0
        self.recorder = Recorder(
            self.queue,
            parts.server,
            parts.samples_db,
            parts.store,
            parts.counts,
            parts.watch,
            parts.screening,
            parts.outbox,
            flagged=self._on_flag,
            counts_interval_s=counts_interval_s,
        )

    def put(self, first: int, losses: list[bool], *, holdout: bool = False) -> None:
        batch = samples(first, len(losses), holdout=holdout)
        labels = [Label(name, 0) for name in batch.ids]
        self.queue.put(Recordable(batch, served(self.parts.bundle, losses), labels))

    def stop(self, timeout_s: float = 60.0) -> None:
        self.recorder.stop(timeout_s)
        assert not self.recorder.alive
        assert self.recorder.failure is None

    def _on_flag(self) -> None:
        self.flagged += 1


@contextmanager
def running(parts: Parts, *, counts_interval_s: float = NEVER_S) -> Iterator[Running]:
    one = Running(parts, counts_interval_s=counts_interval_s)
    one.recorder.start()
    yield one
    if one.recorder.alive:
        one.stop()


def test_samples_are_stored_joined_and_judged(parts: Parts) -> None:
    with running(parts) as one:
        one.put(0, LOW)
        one.put(4, HIGH)
        wait(lambda: one.flagged == 1, "the flag")
    assert parts.store.counts.labelled == 8
    assert [flag.first_drifted_sample for flag in parts.flags()] == ["s4"]
    assert one.recorder.lost_batches == 0


def test_labels_that_come_before_their_samples_are_judged_too(parts: Parts) -> None:
    with running(parts) as one:
        one.put(0, LOW)
        batch = samples(4, BATCH)
        one.queue.put(Recordable(None, None, [Label(name, 0) for name in batch.ids]))
        one.queue.put(Recordable(batch, served(parts.bundle, HIGH), []))
        wait(lambda: one.flagged == 1, "the flag")


def test_labels_that_come_with_more_samples_than_the_store_has_room_for_are_joined(
    tmp_path: Path, bundle: Bundle
) -> None:
    """Room by bytes may be for fewer samples than one transaction, or one read, has."""
    parts = Parts(tmp_path, bundle, room=6)
    one = Running(parts)
    one.put(0, [False] * 40, holdout=True)
    for first in range(40, 80, BATCH):
        one.put(first, LOW, holdout=True)
    one.recorder.start()
    one.stop()
    held = parts.store.counts
    assert (held.labelled, held.evicted_samples, held.early_labels) == (6, 74, 0)
    assert parts.counted() == {0: (80, 80)}
    parts.close()


def test_it_waits_for_no_more_reads_than_fill_half_of_the_queue(parts: Parts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of reads of one sample a transaction holds more than may wait: the pipeline would drop what comes meanwhile."""
    monkeypatch.setattr("edge_agent.runtime.recorder.LINGER_S", NEVER_S)
    one = Running(parts)
    for first in range(QUEUE_BATCHES // 2 + 1):
        one.put(first, [False])
    one.recorder.start()
    wait(lambda: parts.store.counts.labelled == QUEUE_BATCHES // 2 + 1, "what waited")
    one.stop()


def test_a_stop_writes_what_waits(parts: Parts) -> None:
    one = Running(parts)
    for first in range(0, 800, BATCH):
        one.put(first, LOW, holdout=first == 0)
    one.recorder.start()
    one.stop()
    assert parts.store.counts.labelled == 800
    assert parts.counted() == {0: (4, 4)}


def test_holdout_counts_are_reported_at_their_interval(parts: Parts) -> None:
    with running(parts, counts_interval_s=0.05) as one:
        one.put(0, [False, True, False, False], holdout=True)
        wait(lambda: parts.counted() == {0: (4, 3)}, "the counts")
        one.put(4, HIGH, holdout=True)
        wait(lambda: parts.counted() == {0: (8, 3)}, "the counts")


def test_counts_the_outbox_could_not_hold_are_reported_later(parts: Parts) -> None:
    with running(parts, counts_interval_s=0.05) as one:
        deny(parts.agent_db, "outbox")
        one.put(0, LOW, holdout=True)
        wait(lambda: one.queue.empty() and parts.store.counts.labelled == 4, "the batch")
        permit(parts.agent_db, "outbox")
        wait(lambda: parts.counted() == {0: (4, 4)}, "the counts")
    assert one.recorder.lost_batches == 0


def test_a_batch_that_cannot_be_stored_is_lost_alone(parts: Parts) -> None:
    with running(parts) as one:
        batch = replace(samples(0, 1), ids=["x" * 1000])
        one.queue.put(Recordable(batch, served(parts.bundle, [False]), []))
        one.put(4, LOW)
        wait(lambda: parts.store.counts.labelled == 4, "the next batch")
    assert (one.recorder.lost_batches, parts.store.counts.samples) == (1, 4)


def test_a_full_disk_costs_batches_never_the_thread(tmp_path: Path, bundle: Bundle) -> None:
    parts = Parts(tmp_path, bundle, samples_bytes=160_000)
    with running(parts) as one:
        for first in range(0, 4000, 40):
            one.put(first, [False] * 40)
        wait(lambda: one.recorder.lost_batches >= 1, "the disk to be full")
        assert one.recorder.alive
    held = parts.store.counts  # what is at hand at the end may fit where more at a time did not
    assert held.samples == held.labelled > 0
    assert held.samples % 40 == 0
    assert one.recorder.lost_batches == 100 - held.samples // 40
    parts.close()


def test_a_flag_refused_by_the_disk_is_raised_though_nothing_more_comes(parts: Parts) -> None:
    with running(parts) as one:
        one.put(0, LOW)
        wait(lambda: parts.watch.cursor == 4, "the first batch")
        deny(parts.agent_db, "outbox")
        one.put(4, HIGH)
        wait(lambda: parts.watch.behind, "the refusal")
        permit(parts.agent_db, "outbox")
        wait(lambda: one.flagged == 1, "the flag")
    assert [flag.first_drifted_sample for flag in parts.flags()] == ["s4"]
    assert one.recorder.lost_batches == 0


def test_what_was_stored_and_not_judged_is_judged_at_the_start(parts: Parts) -> None:
    parts.label(0, LOW + HIGH)
    again = parts.restarted()
    with running(again) as one:
        wait(lambda: one.flagged == 1, "the flag")
    again.close()


def test_a_database_that_refuses_at_the_start_does_not_end_it(parts: Parts) -> None:
    parts.label(0, LOW + HIGH)
    deny(parts.agent_db, "watch", "UPDATE")
    again = parts.restarted()
    with running(again) as one:
        wait(lambda: again.watch.behind, "the refusal")
        permit(again.agent_db, "watch", "UPDATE")
        wait(lambda: one.flagged == 1, "the flag")
    again.close()


@pytest.mark.parametrize("labelled", [True, False])
def test_it_writes_while_others_read_and_write_the_same_databases(parts: Parts, labelled: bool) -> None:
    stopping = threading.Event()
    failures: list[Exception] = []

    def others() -> None:
        while not stopping.is_set():
            try:
                parts.store.trainable_count("s0" if labelled else None)
                parts.outbox.due(0.0, 10)
            except Exception as error:  # told to the test
                failures.append(error)

    thread = threading.Thread(target=others)
    thread.start()
    with running(parts) as one:
        for first in range(0, 400, BATCH):
            one.put(first, LOW)
    stopping.set()
    thread.join()
    assert (failures, parts.store.counts.labelled) == ([], 400)


@pytest.mark.parametrize("jump_s", [-10 * 365 * 86_400, 100 * 365 * 86_400], ids=["back", "forward"])
def test_a_clock_that_jumps_purges_nothing(tmp_path: Path, bundle: Bundle, jump_s: int) -> None:
    parts = Parts(tmp_path, bundle)
    with pytest.MonkeyPatch.context() as patch, running(parts) as one:
        one.queue.put(Recordable(samples(0, BATCH), served(bundle, LOW), [Label("later", 0)]))
        wait(lambda: parts.store.counts.samples == BATCH, "the samples")
        now_s = time.time()
        patch.setattr(time, "time", lambda: now_s + jump_s)
        one.put(BATCH, LOW)
        wait(lambda: parts.store.counts.labelled == BATCH, "the next samples")
        one.queue.put(Recordable(None, None, [Label(name, 0) for name in samples(0, BATCH).ids]))
        wait(lambda: parts.store.counts.labelled == 2 * BATCH, "the labels that were waited for")
        assert parts.store.counts.early_labels == 1
    parts.close()
