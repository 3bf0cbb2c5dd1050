"""The disk's side of serving: join labels, keep samples, judge drift, count holdout accuracy."""

import queue
import time
from collections.abc import Callable

import structlog

from edge_agent.errors import DataError, StorageError
from edge_agent.link.database import Database
from edge_agent.link.outbox import Outbox, Priority
from edge_agent.link.service import Pulse
from edge_agent.runtime.gathering import GATHERED_SAMPLES, Part, Waiting, gather, put_together
from edge_agent.runtime.part import ThreadPart
from edge_agent.runtime.pipeline import QUEUE_BATCHES, Recordable
from edge_agent.runtime.screening import Screening
from edge_agent.runtime.watch import DriftWatch
from edge_agent.samples.holdout import HoldoutCounts
from edge_agent.samples.record import Label, LabelledRow
from edge_agent.samples.running_time import RunningTime
from edge_agent.samples.store import SampleStore
from edge_agent.serving.server import ModelServer

GET_TIMEOUT_S = 0.25
STORAGE_PAUSE_S = 1.0
LINGER_S = 0.005
LINGERS = 4
"""A transaction is worth its cost: at 100 Hz it holds two or three samples, from a fast source hundreds."""
READS_WAITED_FOR = QUEUE_BATCHES // 2
"""At most: what comes while the queue is full goes unrecorded."""
_log = structlog.get_logger(__name__)


class Recorder(ThreadPart):
    """One thread that writes what the pipeline served.

    Broken readings named, labels joined, samples kept and holdout counts are one transaction of the sample database,
    for all that waits; the monitor's state and its flags are one transaction of the agent's. When the disk refuses,
    the batches are counted as lost and serving goes on; what was recorded and could not be judged is
    judged later. One that cannot be recorded for what it is costs itself alone.

    Args:
        samples_db: the store's and the counts' database.
        flagged: called after a flag was raised.
        counts_interval_s: how often holdout counts are put into the outbox.
        gathered_samples: a transaction begins with no more; below the store's room for the newest, or samples
            would leave it before their labels, which wait beside them, have met them.
    """

    def __init__(
        self,
        recordables: Waiting,
        server: ModelServer,
        samples_db: Database,
        store: SampleStore,
        counts: HoldoutCounts,
        watch: DriftWatch,
        screening: Screening,
        outbox: Outbox,
        *,
        flagged: Callable[[], None],
        counts_interval_s: float,
        gathered_samples: int = GATHERED_SAMPLES,
    ) -> None:
        super().__init__("recorder")
        self._recordables = recordables
        self._server = server
        self._samples_db = samples_db
        self._running = RunningTime(samples_db)
        self._store = store
        self._counts = counts
        self._watch = watch
        self._screening = screening
        self._outbox = outbox
        self._flagged = flagged
        self._counts_interval_s = counts_interval_s
        self._counts_due_s = time.monotonic() + counts_interval_s
        self._gathered_samples = gathered_samples
        self.pulse = Pulse()
        self.lost_batches = 0

    def start(self) -> None:
        """Take up the labelled stream where the monitor's last commit stood, then record."""
        self._store.resume_after(self._watch.cursor)
        super().start()

    def _work(self) -> None:
        """What waits at the stop is written, and the last counts are reported."""
        while not (self._stopping.is_set() and self._recordables.empty()):
            self.pulse.beat()
            self._guarded(self._next())
        self._counts_due_s = 0.0
        self._guarded([])

    def _next(self) -> list[Recordable]:
        """What waits; empty if nothing has come in time.

        After the first one it lingers, so that a fast source is recorded in few transactions, without being
        woken for each sample.
        """
        try:
            first = self._recordables.get(timeout=GET_TIMEOUT_S)
        except queue.Empty:
            return []
        for _ in range(LINGERS):
            if self._recordables.qsize() >= self._enough_after(first) or self._stopping.wait(LINGER_S):
                break
        return gather(self._recordables, first, most_samples=self._gathered_samples)

    def _enough_after(self, first: Recordable) -> int:
        """Reads that fill a transaction, if they are as large as the first; or half of what may wait."""
        samples = len(first.labels) if first.batch is None else len(first.batch.ids)
        return min(READS_WAITED_FOR, self._gathered_samples // max(1, samples))

    def _guarded(self, items: list[Recordable]) -> None:
        """A full or failing disk costs what was at hand, never the thread."""
        try:
            if items:
                self._take(items)
            elif self._watch.behind:
                self._judge([], [])
            if time.monotonic() >= self._counts_due_s:
                self._report_counts()
        except StorageError as error:
            _log.error("storage_failed", problem=str(error), lost=self.lost_batches)
            self._stopping.wait(STORAGE_PAUSE_S)
        except DataError as error:
            _log.warning("batch_refused", problem=str(error), lost=self.lost_batches)

    def _take(self, items: list[Recordable]) -> None:
        try:
            rows, served = self._record(items)
        except (StorageError, DataError):
            if len(items) > 1:
                self._one_by_one(items)
                return
            self.lost_batches += 1
            raise
        self._judge(rows, served)

    def _one_by_one(self, items: list[Recordable]) -> None:
        """All but what is refused for what it is, up to where the disk refuses."""
        rows: list[LabelledRow] = []
        served: list[Part] = []
        refusal: StorageError | None = None
        for place, item in enumerate(items):
            try:
                joined, parts = self._record([item])
                rows += joined
                served += parts
            except DataError as error:
                self.lost_batches += 1
                _log.warning("batch_refused", problem=str(error), lost=self.lost_batches)
            except StorageError as error:
                self.lost_batches += len(items) - place
                refusal = error
                break
        self._judge(rows, served)
        if refusal is not None:
            raise refusal

    def _record(self, items: list[Recordable]) -> tuple[list[LabelledRow], list[Part]]:
        """Samples that have their labels now, and those that were served."""
        parts, labels = put_together(items)
        try:
            recorded = self._stored(parts, labels)
        except (StorageError, DataError):
            self._screening.undone()
            raise
        self._screening.committed()
        return recorded

    def _stored(self, parts: list[Part], labels: list[Label]) -> tuple[list[LabelledRow], list[Part]]:
        now_s = self._running.now_s()
        rows: list[LabelledRow] = []
        with self._samples_db.transaction():
            parts = [(self._screening.look(batch, served.bundle), served) for batch, served in parts]
            for batch, served in parts:
                if (laid := served.overlay) is not None:
                    self._counts.overlaid(laid.digest, laid.release, laid.batches)
                rows += self._store.add(batch, served, now_s, settles=False)
            if labels:
                rows += self._store.label(labels, now_s)
            if parts:
                self._store.settle(now_s)
            self._counts.add(rows)
            self._screening.save()
        return rows, parts

    def _judge(self, rows: list[LabelledRow], served: list[Part]) -> None:
        if self._watch.consume(rows, self._server.active, served, now_s=self._running.now_s()):
            self._flagged()
        self._screening.tell()

    def _report_counts(self) -> None:
        self._counts_due_s = time.monotonic() + self._counts_interval_s
        events = self._counts.dirty()
        for event in events:
            self._outbox.put(event, Priority.TELEMETRY)
        if events:
            self._counts.mark_sent(events)
