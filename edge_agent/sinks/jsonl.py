"""Predictions as JSON lines in a file of bounded size."""

import queue
import threading
from pathlib import Path

import numpy as np
import structlog
from numpy.typing import NDArray

from edge_agent.sinks.sink import prediction_lines

QUEUE_BATCHES = 256
POLL_S = 0.25

_log = structlog.get_logger(__name__)
_Batch = tuple[list[str], list[float], NDArray[np.float32], str, str | None]


class JsonLinesSink:
    """Appends to ``path``; at ``max_bytes`` it becomes ``<path>.1``, in place of the one before.

    Its own thread writes. Lines are not synced: a power cut may cost the last seconds. While the
    disk refuses, predictions are dropped and counted, and the next batch tries again.

    Args:
        path: its folder must exist.
        max_bytes: of each of the two files, about.
    """

    def __init__(self, path: Path, *, max_bytes: int) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._batches: queue.Queue[_Batch] = queue.Queue(QUEUE_BATCHES)
        self._stopping = threading.Event()
        self._refused = False
        self._thread = threading.Thread(target=self._run, name="sink-jsonl", daemon=True)
        self.failure: BaseException | None = None
        self.dropped = 0

    @property
    def alive(self) -> bool:
        """Whether the writing thread lives."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the writing thread."""
        self._thread.start()

    def write(
        self, ids: list[str], times: list[float], outputs: NDArray[np.float32], weights: str, task: str | None = None
    ) -> None:
        """Queue a batch; when the queue is full it is dropped and counted."""
        try:
            self._batches.put_nowait((ids, times, outputs, weights, task))
        except queue.Full:
            self.dropped += len(ids)

    def stop(self, timeout_s: float) -> None:
        """Write what is queued, and end."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while not (self._stopping.is_set() and self._batches.empty()):
                try:
                    batch = self._batches.get(timeout=POLL_S)
                except queue.Empty:
                    continue
                self._append(batch)
        except BaseException as error:
            self.failure = error
            _log.exception("sink_failed", path=str(self._path))

    def _append(self, batch: _Batch) -> None:
        data = b"".join(line + b"\n" for line in prediction_lines(*batch))
        try:
            self._rotate(len(data))
            with self._path.open("ab") as file:
                file.write(data)
        except OSError as error:
            self.dropped += len(batch[0])
            if not self._refused:
                _log.warning("sink_refused", path=str(self._path), problem=error.strerror)
            self._refused = True
        else:
            self._refused = False

    def _rotate(self, more_bytes: int) -> None:
        size = self._path.stat().st_size if self._path.exists() else 0
        if size > 0 and size + more_bytes > self._max_bytes:
            self._path.replace(self._path.with_name(f"{self._path.name}.1"))
