"""Replay of a recording at a given rate."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from edge_agent.errors import ConfigError
from edge_agent.samples.record import SampleBatch
from edge_agent.sources.csv_columns import CsvColumns
from edge_agent.sources.due_labels import DueLabels, InOrder, OutOfOrder
from edge_agent.sources.recording import read_recording
from edge_agent.sources.source import SourceBatch
from edge_agent.wire.manifest import TensorSpec

# After a stall at most this much is made up for at full speed; the rest of the schedule moves back.
CATCH_UP_S = 1.0
READ_ROWS = 64
"""Batches that are all due are given in one read, up to so many rows: what a read costs, they share."""

_log = structlog.get_logger(__name__)


class ReplaySource:
    """Plays a recording: sample k of the play is due k / rate_hz seconds after the first read.

    The schedule does not drift: it counts from its start, on the monotonic clock. A batch is given
    when its last sample is due, together with those behind it that are due as well; the model still predicts them
    batch by batch. Labels come ``delay`` seconds after their samples, so with
    different delays out of order; labels still due when the recording ends are waited for.

    Sample time is the file's ``time``, else row / rate_hz; every pass moves it on by the looped span.
    The id of a sample is ``<row>-<pass>``, or ``<id>-<pass>`` where the file names its rows.

    Args:
        path: an NPZ or CSV file (see ``sources.recording``).
        inputs: the model's.
        rate_hz: samples a second, > 0.
        loop: begin again at the end.
        loop_from_row: where later passes begin.
        batch_size: samples a run of the model, >= 1; the last of a pass may be fewer.
        delay_s: from sample to label where the file has no ``delay``.
        first_pass: number of the first pass. Ids are unique for ever only if whoever starts
            the source anew over the same store passes a number not yet used.
        columns: of a CSV file.
        clock: monotonic seconds.

    Raises:
        ConfigError: the file or a number is wrong (named).
    """

    bad_messages = 0
    """A recording is read whole beforehand, or refused."""

    def __init__(
        self,
        path: Path,
        inputs: Sequence[TensorSpec],
        *,
        rate_hz: float,
        loop: bool = False,
        loop_from_row: int = 0,
        batch_size: int = 8,
        delay_s: float = 0.0,
        first_pass: int = 0,
        columns: CsvColumns | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not (math.isfinite(rate_hz) and rate_hz > 0 and batch_size >= 1 and delay_s >= 0):
            raise ConfigError(
                f"replay at {rate_hz} Hz in batches of {batch_size}, delay {delay_s} s", "give > 0 numbers"
            )
        self._recording = read_recording(path, inputs, columns)
        if not 0 <= loop_from_row < self._recording.rows:
            raise ConfigError(
                f"[source] loop_from_row = {loop_from_row}, but recording {path} has {self._recording.rows} rows",
                "give a row number from 0 on",
            )
        self._rate_hz = rate_hz
        self._loop = loop
        self._loop_from_row = loop_from_row
        self._batch_size = batch_size
        self._delay_s = delay_s
        self._clock = clock
        self._closed = threading.Event()
        self._start_s: float | None = None
        self._row = 0
        self._pass = first_pass
        self._played = 0
        delays = self._recording.delays
        self._labels: DueLabels = InOrder(rate_hz, delay_s) if delays is None else OutOfOrder(rate_hz)
        self._span_s = self._pass_span_s()

    @property
    def played(self) -> int:
        """Samples given so far."""
        return self._played

    @property
    def pass_number(self) -> int:
        """The pass under way."""
        return self._pass

    def read(self, timeout_s: float) -> SourceBatch | None:
        """The next batch when it is due within ``timeout_s``, and all labels due by then."""
        now_s = self._now_s()
        size = self._next_size()
        if self._closed.is_set() or (size == 0 and not self._labels):
            return None
        due_s = (self._played + size - 1) / self._rate_hz if size else self._labels.next_s
        if due_s > now_s:
            now_s = self._wait(now_s, due_s, timeout_s)
            if self._closed.is_set():
                return None
        samples = None
        if size and due_s <= now_s:
            if now_s - due_s > CATCH_UP_S:
                self._fall_back(now_s - due_s)
                now_s = min(now_s, self._now_s())
            samples = self._take(max(size, self._due_rows(now_s)))
        return SourceBatch(samples, self._labels.due(now_s), self._batch_size)

    def close(self) -> None:
        """End the replay; a read under way returns."""
        self._closed.set()

    def _now_s(self) -> float:
        now_s = self._clock()
        if self._start_s is None:
            self._start_s = now_s
        return now_s - self._start_s

    def _wait(self, now_s: float, due_s: float, timeout_s: float) -> float:
        wait_s = min(due_s - now_s, timeout_s)
        if wait_s > 0:
            self._closed.wait(wait_s)
        return self._now_s()

    def _fall_back(self, late_s: float) -> None:
        if self._start_s is not None:
            self._start_s += late_s - CATCH_UP_S
            _log.info("replay_behind", late_s=round(late_s, 3), moved_back_s=round(late_s - CATCH_UP_S, 3))

    def _next_size(self) -> int:
        if self._row >= self._recording.rows:
            if not self._loop:
                return 0
            self._row = self._loop_from_row
            self._pass += 1
        return min(self._batch_size, self._recording.rows - self._row)

    def _due_rows(self, now_s: float) -> int:
        """Rows of the whole batches of this pass that are due by now, as far as a read goes."""
        due = int(now_s * self._rate_hz) - self._played  # one less than that, perhaps: a product is rounded
        most = min(due, self._recording.rows - self._row, READ_ROWS)
        return most // self._batch_size * self._batch_size

    def _take(self, size: int) -> SampleBatch:
        recording, start, stop = self._recording, self._row, self._row + size
        batch = SampleBatch(
            ids=self._ids(start, stop),
            times=self._times_s(start, stop),
            features={name: array[start:stop] for name, array in recording.features.items()},
            groups=[] if recording.groups is None else list(recording.groups[start:stop]),
            holdouts=[] if recording.holdouts is None else recording.holdouts[start:stop].tolist(),
            tasks=[] if recording.tasks is None else list(recording.tasks[start:stop]),
        )
        if recording.labels is not None:
            delays = [] if recording.delays is None else recording.delays[start:stop].tolist()
            self._labels.schedule(self._played, batch.ids, recording.labels[start:stop].tolist(), delays)
        self._row = stop
        self._played += size
        return batch

    def _ids(self, start: int, stop: int) -> list[str]:
        names = range(start, stop) if self._recording.ids is None else self._recording.ids[start:stop]
        return [f"{name}-{self._pass}" for name in names]

    def _times_s(self, start: int, stop: int) -> list[float]:
        moved_s, times = self._pass * self._span_s, self._recording.times
        if times is None:
            return [row / self._rate_hz + moved_s for row in range(start, stop)]
        return [float(time_s) + moved_s for time_s in times[start:stop].tolist()]

    def _recorded_s(self, row: int) -> float:
        return row / self._rate_hz if self._recording.times is None else float(self._recording.times[row])

    def _pass_span_s(self) -> float:
        """By how much sample time moves on from pass to pass: the looped rows' span and one mean step."""
        steps = self._recording.rows - 1 - self._loop_from_row
        span_s = self._recorded_s(self._recording.rows - 1) - self._recorded_s(self._loop_from_row)
        return span_s + span_s / steps if steps > 0 and span_s > 0 else (steps + 1) / self._rate_hz
