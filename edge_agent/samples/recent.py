"""The newest samples: chunks on disk, and in memory all of them but features and outputs."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any
from zlib import crc32

import numpy as np
import structlog
from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.link.database import Database
from edge_agent.samples.chunk import PARTS, Chunk, read_chunks, seal_outputs
from edge_agent.samples.joined import Joined
from edge_agent.samples.outputs import HeldOutputs
from edge_agent.samples.record import LabelledRow
from edge_agent.samples.segments import SegmentGone, Segments
from edge_agent.samples.tables import ARRIVAL, PASSED, SAMPLE, Stage, last_number, set_number, take_numbers

GROWN_SAMPLES = 64
GROWN_BYTES = 16 * 1024
"""A chunk with less takes up the next samples, so that a slow source does not make one of each; it is written anew."""
SEGMENT = "segment"
SPOILT = "spoilt_samples"
MODELS_AT_HAND = 256
LOST = 0
"""Number of no input layout: that of samples whose features are lost."""
_AS_ROW: Callable[[Iterable[Any]], LabelledRow] = partial(tuple.__new__, LabelledRow)
"""As `LabelledRow._make` does, but for the length, in half the time."""
Model = tuple[str, str, int, str]
"""Bundle, weights, version and cohort."""
_log = structlog.get_logger(__name__)


class Recent:
    """What was inserted after the number that was passed last; usable inside the caller's transactions only.

    Rebuilt from the chunks at the start and after a transaction that was rolled back. What is not what was written
    is named in the log and counted: a chunk is dropped, of lost features the rest is kept.

    Attributes:
        chunks: in order; the first may begin with samples that were passed.
        passed: the highest insertion number that is not recent any more.
        places: insertion number by id.
        came: insertion numbers of samples that were given up before their label came.
        outputs: of its chunks.
    """

    def __init__(self, db: Database, segments: Segments) -> None:
        self._db = db
        self._segments = segments
        self._writing: int | None = None
        self._doomed: list[tuple[int, int]] = []
        self.outputs = HeldOutputs(db)
        self._models: dict[int, Model] = {}
        self._dirty: dict[int, Chunk] = {}
        self.load()

    def load(self) -> None:
        """Read the chunks anew; the next samples go to another file."""
        self.passed = last_number(self._db, PASSED)
        self.chunks, spoilt = read_chunks(self._db)
        for first, problem in spoilt:
            self._drop(first, problem)
        self.outputs.clear()
        self._dirty.clear()
        self._models = {row[0]: (row[1], row[2], row[3], row[4]) for row in self._db.query("SELECT * FROM model")}
        self._writing = None
        self._numbers = {name: last_number(self._db, name) for name in (SAMPLE, ARRIVAL)}
        self._firsts = [chunk.first for chunk in self.chunks]
        self.places: dict[str, int] = {}
        self.came: list[int] = []
        for chunk in self.chunks:
            self._take_in(chunk)

    def begin(self) -> None:
        """At the start: find features that a power cut took, and remove files that nothing refers to."""
        there = self._segments.numbers()
        last = max((chunk.segment for chunk in self.chunks), default=0)
        for chunk in self.chunks:
            if chunk.segment == last or chunk.segment not in there:
                self.features(chunk)
        self._segments.sync(last)
        self._segments.remove(there - {chunk.segment for chunk in self.chunks})

    def take(self, name: str, count: int) -> int:
        """The first of ``count`` insertion or arrival numbers that were never given out."""
        first = self._numbers[name] + 1
        self.raise_to(name, self._numbers[name] + count)
        return first

    def raise_to(self, name: str, floor: int) -> None:
        """Give out no insertion or arrival number up to ``floor`` again."""
        if self._numbers[name] < floor:
            set_number(self._db, name, floor)
            self._numbers[name] = floor

    def newest(self) -> int:
        """The highest insertion number given out."""
        return self._numbers[SAMPLE]

    def add(self, made: Chunk, outputs: NDArray[np.float32], rows: NDArray[np.uint8]) -> None:
        """Store new samples; ``made`` has its number and columns, where its features go is decided here."""
        view = rows.data.cast("B") if rows.size else memoryview(b"")
        segment = self._segment()
        start = self._segments.append(segment, view)
        tail = self.chunks[-1] if self.chunks else None
        if tail is not None and self._grows(tail, made, segment, start, outputs):
            self._grow(tail, made, outputs, view)
            return
        made.segment, made.start, made.checksum = segment, start, crc32(view)
        self.outputs.hold(made.first, outputs)
        self._write(made, outputs)
        self.chunks.append(made)
        self._firsts.append(made.first)
        self.places.update(zip(made.ids, range(made.first, made.end), strict=True))

    def sync(self) -> None:
        """Bring the features written since the start to the disk."""
        if self._writing is not None:
            self._segments.sync(self._writing)

    def stored(self, seq: int) -> tuple[Chunk, int] | None:
        """The chunk of a recent sample, and its row there; None: it is not there any more."""
        number = bisect_right(self._firsts, seq) - 1
        if number < 0 or seq <= self.passed or seq >= self.chunks[number].end:
            return None
        chunk = self.chunks[number]
        row = seq - chunk.first
        return None if chunk.stages[row] == Stage.GONE else (chunk, row)

    def is_open(self, seqs: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(n,) whether no label has come for these recent samples."""
        is_open = np.zeros(len(seqs), np.bool_)
        for chunk, entries, places in self._by_chunk(seqs):
            is_open[entries] = chunk.arrivals[places] == 0
        return is_open

    def join(self, joined: Joined) -> list[LabelledRow]:
        """Give recent samples their labels; the rows in the order of arrival."""
        rows: list[LabelledRow] = []
        for chunk, entries, places in self._by_chunk(joined.seqs):
            late = places[chunk.stages[places] == Stage.UNLABELLED]
            self.came += (chunk.first + late).tolist()
            chunk.arrivals[places] = joined.arrivals[entries]
            chunk.labels[places] = joined.values[entries]
            chunk.whole[places] = joined.whole[entries]
            self._dirty[chunk.first] = chunk
            rows += self.rows(chunk, places)
        rows.sort()
        return rows

    def rows(self, chunk: Chunk, places: NDArray[np.intp]) -> list[LabelledRow]:
        """Labelled rows of a chunk; none, if its outputs are spoilt."""
        outputs = self.outputs.of(chunk)
        if outputs is None:
            return []
        chosen = places.tolist()
        columns = zip(
            chunk.arrivals[places].tolist(),
            map(chunk.ids.__getitem__, chosen),
            chunk.times[places].tolist(),
            map(PARTS.__getitem__, chunk.parts[places].tolist()),
            outputs[places],
            chunk.label_list(places),
            *map(repeat, self._models[chunk.model]),
            map(chunk.tasks.__getitem__, chosen) if chunk.tasks else repeat(None),
            strict=False,  # what is repeated has no end
        )
        return list(map(_AS_ROW, columns))

    def since(self, arrival: int, limit: int) -> list[LabelledRow]:
        """Rows with an arrival number above ``arrival``, in order, at most ``limit``."""
        found: list[tuple[Chunk, NDArray[np.intp]]] = []
        for chunk in self.chunks:
            alive = self.alive(chunk)
            fit = alive[chunk.arrivals[alive] > arrival]
            if len(fit):
                found.append((chunk, fit))
        if not found:
            return []
        numbers = np.sort(np.concatenate([chunk.arrivals[fit] for chunk, fit in found]))
        last = numbers[min(limit, len(numbers)) - 1]
        rows = [row for chunk, fit in found for row in self.rows(chunk, fit[chunk.arrivals[fit] <= last])]
        rows.sort()
        return rows

    def count(self, layout: int, part: int, first: int, task: str | None) -> int:
        """How many labelled samples of a layout and part there are from insertion number ``first`` on."""
        total = 0
        for chunk in self.chunks:
            if chunk.layout == layout and chunk.end > first:
                rows = chunk.rows_of(part, max(first, self.passed + 1), task)
                fit = (chunk.arrivals[rows] > 0) & (chunk.stages[rows] == Stage.RECENT)
                total += int(np.count_nonzero(fit))
        return total

    def stages(self) -> NDArray[np.int64]:
        """How many samples there are without and with a label, at each stage: (2, stages)."""
        found = np.zeros((2, len(Stage)), np.int64)
        for chunk in self.chunks:
            rows = self.alive(chunk)
            np.add.at(found, ((chunk.arrivals[rows] > 0).astype(np.intp), chunk.stages[rows]), 1)
        return found

    def reaching(self, last: int) -> Iterator[tuple[Chunk, NDArray[np.intp]]]:
        """Chunks, and in them the rows up to insertion number ``last`` that are recent and not gone."""
        for chunk in self.chunks:
            if chunk.first > last:
                return
            yield chunk, self.alive(chunk, last)

    def alive(self, chunk: Chunk, last: int | None = None) -> NDArray[np.intp]:
        """The rows of a chunk that are recent and not gone, up to insertion number ``last``."""
        begin, end = max(0, self.passed + 1 - chunk.first), len(chunk.ids)
        if last is not None:
            end = min(end, last + 1 - chunk.first)
        return begin + np.flatnonzero(chunk.stages[begin:end] != Stage.GONE)

    def move(self, seqs: Sequence[int], stage: Stage) -> None:
        """Samples are at another stage; those that are gone are unknown from now on."""
        for seq in seqs:
            found = self.stored(seq)
            if found is None:
                continue
            chunk, row = found
            chunk.stages[row] = stage
            chunk.aside = chunk.aside or stage is Stage.UNLABELLED
            self._dirty[chunk.first] = chunk
            if stage is Stage.GONE:
                self._forget(chunk, range(row, row + 1))

    def features(self, chunk: Chunk) -> NDArray[np.uint8] | None:
        """(n, row_bytes) the features; None: they are lost."""
        if chunk.layout == LOST:
            return None
        try:
            return self._segments.read(chunk.segment, chunk.start, len(chunk.ids), chunk.row_bytes, chunk.checksum)
        except (DataError, SegmentGone) as error:
            self._lose(chunk, str(error))
            return None

    def leave(self, last: int) -> None:
        """Insertion numbers up to ``last`` are not recent any more; what was not taken elsewhere is gone."""
        for chunk in list(self.chunks):
            if chunk.first > last:
                break
            self._forget(
                chunk, range(max(0, self.passed + 1 - chunk.first), min(len(chunk.ids), last + 1 - chunk.first))
            )
            if chunk.end - 1 <= last:
                self._take_out(chunk)
                self._delete(chunk.first)
        self.passed = last
        set_number(self._db, PASSED, last)

    def flush(self) -> None:
        """Write what labels and retention have changed."""
        if self._dirty:
            self._db.execute_many(
                "UPDATE joined SET data = ? WHERE first = ?",
                [(chunk.joined(), chunk.first) for chunk in self._dirty.values()],
            )
            self._dirty.clear()

    def remove_files(self) -> None:
        """Remove the files whose last sample left in a transaction that was committed."""
        begun = self._db.transactions
        ready = [number for number, transaction in self._doomed if transaction < begun]
        if ready:
            self._doomed = [entry for entry in self._doomed if entry[0] not in ready]
            self._segments.remove(set(ready) - {chunk.segment for chunk in self.chunks})

    def model_number(self, key: Model) -> int:
        """The number of what served: bundle, weights, version, cohort."""
        for number, known in reversed(self._models.items()):
            if known == key:
                return number
        if len(self._models) >= MODELS_AT_HAND:
            self._forget_models()
        self._db.execute("INSERT INTO model (bundle, weights, version, cohort) VALUES (?, ?, ?, ?)", key)
        number = int(self._db.query("SELECT last_insert_rowid()")[0][0])
        self._models[number] = key
        return number

    def _forget_models(self) -> None:
        """Those of which no sample is left: where a gateway adapts between rounds there are some every hour."""
        used = {chunk.model for chunk in self.chunks}
        used |= {row[0] for row in self._db.query("SELECT DISTINCT model FROM sample")}
        gone = self._models.keys() - used
        self._db.execute_many("DELETE FROM model WHERE model = ?", [(number,) for number in sorted(gone)])
        self._models = {number: model for number, model in self._models.items() if number in used}

    def _by_chunk(self, seqs: NDArray[np.int64]) -> Iterator[tuple[Chunk, NDArray[np.intp], NDArray[np.intp]]]:
        """Chunks, which entries are of each, and their rows there."""
        of_chunk = np.searchsorted(self._firsts, seqs, side="right") - 1
        for number in sorted(set(of_chunk.tolist())):
            chunk = self.chunks[number]
            entries = np.flatnonzero(of_chunk == number)
            yield chunk, entries, seqs[entries] - chunk.first

    def _segment(self) -> int:
        if self._writing is None or self._segments.is_full(self._writing):
            self._retire(self._writing)
            self._writing = take_numbers(self._db, SEGMENT, 1)
        return self._writing

    def _retire(self, segment: int | None) -> None:
        """A file that is written no more; it may have lost its last sample already."""
        if segment is not None and all(chunk.segment != segment for chunk in self.chunks):
            self._doomed.append((segment, self._db.transactions))

    def _grows(self, tail: Chunk, made: Chunk, segment: int, start: int, outputs: NDArray[np.float32]) -> bool:
        if tail.segment != segment or tail.model != made.model or tail.layout != made.layout or tail.end != made.first:
            return False
        n = len(tail.ids)
        if n >= GROWN_SAMPLES or start != tail.start + n * tail.row_bytes:
            return False
        held = self.outputs.of(tail)
        return held is not None and held.shape[1] == outputs.shape[1] and held.nbytes < GROWN_BYTES

    def _grow(self, tail: Chunk, made: Chunk, outputs: NDArray[np.float32], view: memoryview) -> None:
        made.checksum = crc32(view, tail.checksum)
        held = self.outputs.of(tail)
        whole = outputs if held is None else np.concatenate([held, outputs])
        tail.grown(made)
        self.outputs.hold(tail.first, whole)
        self._write(tail, whole)
        self.places.update(zip(made.ids, range(made.first, made.end), strict=True))

    def _write(self, chunk: Chunk, outputs: NDArray[np.float32]) -> None:
        self._db.execute(
            "INSERT OR REPLACE INTO chunk VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                chunk.first,
                chunk.layout,
                chunk.model,
                chunk.segment,
                chunk.start,
                chunk.checksum,
                chunk.row_bytes,
                chunk.served(),
                seal_outputs(outputs, chunk.first),
            ),
        )
        self._db.execute("INSERT OR REPLACE INTO joined VALUES (?, ?)", (chunk.first, chunk.joined()))
        self._dirty.pop(chunk.first, None)

    def _take_in(self, chunk: Chunk) -> None:
        alive = self.alive(chunk).tolist()
        self.places.update((chunk.ids[row], chunk.first + row) for row in alive)
        late = (chunk.stages == Stage.UNLABELLED) & (chunk.arrivals > 0)
        self.came += [chunk.first + row for row in alive if late[row]]

    def _take_out(self, chunk: Chunk) -> None:
        place = self.chunks.index(chunk)
        del self.chunks[place], self._firsts[place]
        self._dirty.pop(chunk.first, None)
        self.outputs.drop(chunk.first)
        if chunk.segment != self._writing:
            self._retire(chunk.segment)

    def _forget(self, chunk: Chunk, rows: range) -> None:
        for row in rows:
            if self.places.get(chunk.ids[row]) == chunk.first + row:
                del self.places[chunk.ids[row]]

    def _lose(self, chunk: Chunk, problem: str) -> None:
        """Its features are not what was written: its samples are known and monitored, and never trained on."""
        _log.error("features_lost", samples=len(chunk.ids), first=chunk.ids[0], problem=problem)
        chunk.layout = LOST
        self._db.execute("UPDATE chunk SET layout = ?, served = ? WHERE first = ?", (LOST, chunk.served(), chunk.first))
        take_numbers(self._db, SPOILT, len(chunk.ids))

    def _drop(self, first: int, problem: str) -> None:
        _log.error("chunk_dropped", number=first, problem=problem)
        self._delete(first)
        take_numbers(self._db, SPOILT, 1)

    def _delete(self, first: int) -> None:
        self._db.execute("DELETE FROM chunk WHERE first = ?", (first,))
        self._db.execute("DELETE FROM joined WHERE first = ?", (first,))
