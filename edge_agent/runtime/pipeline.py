"""The hot path's thread: source, prediction, sink, and on to the recorder."""

import queue
from dataclasses import dataclass

import structlog

from edge_agent.errors import DataError
from edge_agent.link.service import Pulse
from edge_agent.runtime.part import ThreadPart
from edge_agent.samples.record import Label, SampleBatch
from edge_agent.serving.server import ModelServer, Served
from edge_agent.sinks.sink import Sink
from edge_agent.sources.source import Source

READ_TIMEOUT_S = 0.25
QUEUE_BATCHES = 512
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Recordable:
    """What one read of the source gave, with its predictions."""

    batch: SampleBatch | None
    served: Served | None
    labels: list[Label]


class Pipeline(ThreadPart):
    """Reads the source and predicts; disk and network are other threads' work.

    The queue to the recorder is bounded. When it is full the predictions are still made and
    passed to the sink; what could not be recorded is counted in ``unrecorded_samples`` and
    ``unrecorded_labels``.
    """

    def __init__(self, source: Source, server: ModelServer, sink: Sink) -> None:
        super().__init__("pipeline")
        self._source = source
        self._server = server
        self._sink = sink
        self.recordables: queue.Queue[Recordable] = queue.Queue(QUEUE_BATCHES)
        self.pulse = Pulse()
        self.finished = False
        self.served_samples = 0
        self.refused_samples = 0
        self.unrecorded_samples = 0
        self.unrecorded_labels = 0

    def stop(self, timeout_s: float) -> None:
        """Stop after the batch under way."""
        super().stop(timeout_s)
        self._source.close()

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
            self._take(read.samples, read.labels)

    def _take(self, batch: SampleBatch | None, labels: list[Label]) -> None:
        served = None
        if batch is not None and len(batch.ids):
            try:
                served = self._server.process(batch)
            except DataError as error:
                self.refused_samples += len(batch.ids)
                _log.warning("samples_refused", problem=str(error), count=len(batch.ids))
                batch = None
            else:
                self.served_samples += len(batch.ids)
                self._sink.write(batch.ids, batch.times, served.outputs, served.weights)
        if batch is None and not labels:
            return
        try:
            self.recordables.put_nowait(Recordable(batch, served, labels))
        except queue.Full:
            self.unrecorded_samples += len(batch.ids) if batch is not None else 0
            self.unrecorded_labels += len(labels)
