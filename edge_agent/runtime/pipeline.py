"""The hot path's thread: source, prediction, sink, and on to the recorder."""

import queue
from collections.abc import Iterator
from typing import NamedTuple

import structlog

from edge_agent.errors import DataError
from edge_agent.link.service import Pulse
from edge_agent.runtime.part import ThreadPart
from edge_agent.samples.record import Label, SampleBatch
from edge_agent.samples.tasks import by_task, task_of
from edge_agent.serving.server import ModelServer, Served
from edge_agent.sinks.sink import Sink
from edge_agent.sources.source import Source

READ_TIMEOUT_S = 0.25
QUEUE_BATCHES = 512
UNKNOWN_TASKS_NAMED = 16
_log = structlog.get_logger(__name__)


class Recordable(NamedTuple):
    """What one read of the source gave, with its predictions; a tuple, since one is made for every read."""

    batch: SampleBatch | None
    served: Served | None
    labels: list[Label]


class Pipeline(ThreadPart):
    """Reads the source and predicts; disk and network are other threads' work.

    The queue to the recorder is bounded. When it is full the predictions are still made and
    passed to the sink; what could not be recorded is counted in ``unrecorded_samples`` and
    ``unrecorded_labels``. A sample of a task that the bundle does not have is refused: counted in
    ``refused_samples`` and, for the first few names, in ``unknown_tasks``.
    """

    def __init__(self, source: Source, server: ModelServer, sink: Sink) -> None:
        super().__init__("pipeline")
        self._source = source
        self._server = server
        self._sink = sink
        self.recordables: queue.SimpleQueue[Recordable] = queue.SimpleQueue()
        self.pulse = Pulse()
        self.finished = False
        self.served_samples = 0
        self.refused_samples = 0
        self.unknown_tasks: dict[str, int] = {}
        self.unrecorded_samples = 0
        self.unrecorded_labels = 0

    def stop(self, timeout_s: float) -> None:
        """Stop after the batch under way."""
        super().stop(timeout_s)
        self._source.close()

    @property
    def refused_messages(self) -> int:
        """What the source could not read."""
        return self._source.bad_messages

    @property
    def alive(self) -> bool:
        """Whether samples are being served, or the source has come to its end."""
        return self.finished or super().alive

    def _work(self) -> None:
        while not self._stopping.is_set():
            self.pulse.beat()
            read = self._source.read(READ_TIMEOUT_S)
            if read is None:
                self.finished = True
                self.pulse.rest()
                _log.info("source_finished", served=self.served_samples)
                return
            self._take(read.samples, read.labels, read.run_rows)

    def _take(self, batch: SampleBatch | None, labels: list[Label], run_rows: int | None) -> None:
        parts = self._parts(batch) if batch is not None and batch.ids else []
        last: tuple[SampleBatch | None, Served | None] = None, None
        for served in (served for part in parts for served in self._predicted(part, run_rows)):
            self._hand_on(*last, [])
            last = served
        self._hand_on(*last, labels)

    def _predicted(self, batch: SampleBatch, run_rows: int | None) -> Iterator[tuple[SampleBatch, Served]]:
        """What was predicted of a batch, in order: in several parts where its runs take long or one is refused."""
        part, made = self._first_of(batch, run_rows)
        if made is not None:
            yield part, made
        while len(part.ids) < len(batch.ids) and not self._stopping.is_set():
            self.pulse.beat()
            batch = batch.rows(len(part.ids), len(batch.ids))
            part, made = self._first_of(batch, run_rows)
            if made is not None:
                yield part, made

    def _parts(self, batch: SampleBatch) -> list[SampleBatch]:
        parts, unknown = by_task(batch, self._server.active.tasks)
        for task, ids in unknown.items():
            self.refused_samples += len(ids)
            if task in self.unknown_tasks or len(self.unknown_tasks) < UNKNOWN_TASKS_NAMED:
                self.unknown_tasks[task] = self.unknown_tasks.get(task, 0) + len(ids)
            _log.warning("task_unknown", task=task, count=len(ids), id=ids[0], known=self._server.active.tasks)
        return parts

    def _first_of(self, batch: SampleBatch, run_rows: int | None) -> tuple[SampleBatch, Served | None]:
        """As much of a batch as was predicted in one go, or refused: then without predictions."""
        in_runs = run_rows is not None and run_rows < len(batch.ids)
        try:
            served = self._server.process(batch, run_rows)
        except DataError as error:
            if in_runs:  # only those of the run that is refused are
                return self._first_of(batch.rows(0, run_rows or 0), None)
            self.refused_samples += len(batch.ids)
            _log.warning("samples_refused", problem=str(error), count=len(batch.ids))
            return batch, None
        if in_runs and len(served.outputs) < len(batch.ids):
            batch = batch.rows(0, len(served.outputs))
        self.served_samples += len(batch.ids)
        self._sink.write(batch.ids, batch.times, served.outputs, served.weights, task_of(batch))
        return batch, served

    def _hand_on(self, batch: SampleBatch | None, served: Served | None, labels: list[Label]) -> None:
        if batch is None and not labels:
            return
        if self.recordables.qsize() < QUEUE_BATCHES:  # nobody else puts
            self.recordables.put(Recordable(batch, served, labels))
            return
        self.unrecorded_samples += len(batch.ids) if batch is not None else 0
        self.unrecorded_labels += len(labels)
