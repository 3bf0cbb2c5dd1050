"""A recording as a gateway would meet it: samples in order, each label when it is due, on a clock of its own."""

import heapq
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import ConfigError
from edge_agent.samples.record import ID_CHARS, Label, SampleBatch, is_sample_id
from edge_agent.sources.csv_columns import CsvColumns, csv_header
from edge_agent.sources.recording import Recording, read_arrays, recording_of
from edge_agent.wire.manifest import Manifest

REPEATED_MOST = 0.1
"""Of the ids; where more repeat, the column does not name samples, and their row numbers do."""
STEP_DEFAULT_S = 1.0


@dataclass(frozen=True, slots=True)
class Moment:
    """What happens at one time.

    Attributes:
        now_s: the replay's clock, from 0, never backwards.
        samples: served now.
        labels: that come now, after the samples.
        rows: of the recording that have been played, these included.
    """

    now_s: float
    samples: SampleBatch | None
    labels: list[Label]
    rows: int


@dataclass(frozen=True)
class Played:
    """A recording that is ready to play.

    Args:
        recording: its rows.
        names: the rows' ids.
        clock_s: (rows,) seconds from the first row, rising: the times with steps back taken out, or the schedule.
        times_s: (rows,) as recorded, or the schedule's.
        timed: whether the recording has times.
        forwards: whether they never run backwards.
        notes: what was done about what does not fit.
    """

    recording: Recording
    names: list[str]
    clock_s: NDArray[np.float64]
    times_s: NDArray[np.float64]
    timed: bool
    forwards: bool
    notes: tuple[str, ...]

    @property
    def rows(self) -> int:
        """Of the recording."""
        return self.recording.rows

    @property
    def labelled(self) -> bool:
        """Whether any row has a label."""
        labels = self.recording.labels
        return labels is not None and bool(np.isfinite(labels.astype(np.float64)).any())

    def moments(self, batch_size: int, *, delay_s: float) -> Iterator[Moment]:
        """All samples in batches, and all labels that come; the last moments have labels alone.

        Args:
            batch_size: samples a moment at most; labels that are due meanwhile come at its end.
            delay_s: from sample to label, where the recording says none.

        Cost: memory for the labels that are due.
        """
        due: list[tuple[float, int, Label]] = []
        for start in range(0, self.rows, batch_size):
            stop = min(self.rows, start + batch_size)
            now_s = float(self.clock_s[stop - 1])
            self._schedule(due, start, stop, delay_s)
            yield Moment(now_s, self._batch(start, stop), list(_come(due, now_s)), stop)
        while due:
            now_s = due[0][0]
            yield Moment(now_s, None, list(_come(due, now_s, most=batch_size)), self.rows)

    def _schedule(self, due: list[tuple[float, int, Label]], start: int, stop: int, delay_s: float) -> None:
        recording = self.recording
        if recording.labels is None:
            return
        values = recording.labels[start:stop].tolist()
        delays = [delay_s] * (stop - start) if recording.delays is None else recording.delays[start:stop].tolist()
        for row, value, delay in zip(range(start, stop), values, delays, strict=True):
            if not (math.isnan(value) or math.isnan(delay)):
                heapq.heappush(due, (float(self.clock_s[row]) + delay, row, Label(self.names[row], value)))

    def _batch(self, start: int, stop: int) -> SampleBatch:
        recording = self.recording
        return SampleBatch(
            ids=self.names[start:stop],
            times=self.times_s[start:stop].tolist(),
            features={name: array[start:stop] for name, array in recording.features.items()},
            groups=[] if recording.groups is None else list(recording.groups[start:stop]),
            holdouts=[] if recording.holdouts is None else recording.holdouts[start:stop].tolist(),
            tasks=[] if recording.tasks is None else list(recording.tasks[start:stop]),
        )


def read_played(
    path: Path, manifest: Manifest, *, keys: Mapping[str, str] = MappingProxyType({}), step_s: float | None = None
) -> Played:
    """Read a recording to be played.

    Args:
        keys: of a CSV file: ``label``, ``time`` and so on to the columns that hold them.
        step_s: seconds between two samples where the recording has no times; None: 1.

    Raises:
        ConfigError: it cannot be read or does not fit the model (file, row or line, and column named).

    Cost: the file's arrays once in memory.
    """
    _refuse_unfit(path, keys)
    columns = _columns(path, manifest, keys) if path.suffix == ".csv" else None
    arrays = read_arrays(path, manifest.inputs, columns)
    notes: list[str] = []
    names = _names(path, arrays, notes)
    recording = recording_of(path, arrays, manifest.inputs)
    names = names or recording.ids or [str(row) for row in range(recording.rows)]
    if recording.times is None:
        if step_s is None:
            notes.append("there is no column time: one sample a second is assumed; --stream-rate says otherwise")
        schedule = np.arange(recording.rows, dtype=np.float64) * (step_s or STEP_DEFAULT_S)
        return Played(recording, names, schedule, schedule, False, True, tuple(notes))
    back = np.flatnonzero(np.diff(recording.times) < 0) + 1
    if len(back):
        notes.append(f"time runs backwards {len(back)} times, first in row {back[0]}: rows stay in their order")
    clock = np.maximum.accumulate(recording.times) - recording.times[0]
    return Played(recording, names, clock, recording.times, True, not len(back), tuple(notes))


def _refuse_unfit(path: Path, keys: Mapping[str, str]) -> None:
    """What was typed that cannot be played; the sources would point at the agent's settings."""
    if not path.exists():
        raise ConfigError(f"recording {path} does not exist", "DATA is the path of a .npz or .csv file")
    if path.is_dir():
        raise ConfigError(f"recording {path} is a directory", "DATA is the path of a .npz or .csv file")
    if path.suffix not in (".csv", ".npz"):
        raise ConfigError(f"recording {path} is neither .npz nor .csv", "convert it (docs/data.md)")
    if keys and path.suffix == ".npz":
        problem = f"--column is for .csv files, and {path} is an .npz file"
        raise ConfigError(problem, f"name its arrays themselves {', '.join(keys)} (docs/data.md)")


def _columns(path: Path, manifest: Manifest, keys: Mapping[str, str]) -> CsvColumns:
    """The features by the manifest's names, where the header has them all."""
    header = set(csv_header(path))
    named = [feature.name for feature in manifest.features]
    found = len(manifest.inputs) == 1 and bool(named) and header.issuperset(named)
    classes = {name: number for number, name in enumerate(manifest.label_names)}
    return CsvColumns({manifest.inputs[0].name: named} if found else {}, keys, classes)


def _names(path: Path, arrays: dict[str, NDArray[Any]], notes: list[str]) -> list[str] | None:
    """The ids where some repeat; the column is taken out then, since a recording's must not."""
    ids = arrays.get("id")
    if ids is None or ids.ndim != 1 or ids.dtype.kind not in "Uiu" or len(np.unique(ids)) == len(ids):
        return None
    del arrays["id"]
    found = [str(name) for name in ids.tolist()]
    first = np.unique(ids, return_index=True)[1]
    row = int(np.setdiff1d(np.arange(len(found)), first)[0])
    repeated = len(found) - len(first)
    if repeated > REPEATED_MOST * len(found):
        notes.append(f"column id names no samples: {repeated} repeat, first in row {row}; row numbers are used")
        return None
    notes.append(f"{repeated} ids repeat, first {found[row]!r} in row {row}: repeated samples are passed over")
    wrong = next((row for row, name in enumerate(found) if not is_sample_id(name)), None)
    if wrong is not None:
        problem = f"recording {path}: 'id' is {found[wrong][:ID_CHARS]!r} in row {wrong}"
        raise ConfigError(problem, f"give 1 to {ID_CHARS} characters, none a control character")
    return found


def _come(due: list[tuple[float, int, Label]], now_s: float, most: int | None = None) -> Iterator[Label]:
    given = 0
    while due and due[0][0] <= now_s and (most is None or given < most):
        yield heapq.heappop(due)[2]
        given += 1
