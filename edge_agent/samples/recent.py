"""The newest samples: chunks on disk, and in memory all of them but features and outputs."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.link.database import Database
from edge_agent.samples.chunk import PARTS, Chunk
from edge_agent.samples.chunk_table import LOST, delete_chunk, mark_lost, read_chunks, write_chunk, write_joined
from edge_agent.samples.feature_files import FeatureFiles
from edge_agent.samples.joined import Joined
from edge_agent.samples.marks import BEGIN, marked
from edge_agent.samples.numbers import Model, Models, Numbers
from edge_agent.samples.outputs import HeldOutputs
from edge_agent.samples.record import LabelledRow
from edge_agent.samples.segments import SegmentGone, Segments
from edge_agent.samples.tables import PASSED, Stage, last_number, set_number, take_numbers

GROWN_SAMPLES = 64
GROWN_BYTES = 16 * 1024
"""A chunk with less takes up the next samples, so that a slow source does not make one of each; it is written anew."""
SPOILT = "spoilt_samples"
_AS_ROW: Callable[[Iterable[Any]], LabelledRow] = partial(tuple.__new__, LabelledRow)
"""As `LabelledRow._make` does, but for the length, in half the time."""
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
        numbers: of insertions and arrivals.
    """

    def __init__(self, db: Database, segments: Segments) -> None:
        self._db = db
        self._segments = segments
        self._files = FeatureFiles(db, segments, self._used_files)
        self.outputs = HeldOutputs(db)
        self.numbers = Numbers(db)
        self._models = Models(db, lambda: {chunk.model for chunk in self.chunks})
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
        self._models.load()
        self._files.begin_anew()
        self.numbers.load()
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
                self.features(chunk, np.arange(len(chunk.ids)))
        self._segments.sync(last)
        self._segments.remove(there - self._used_files())

    def model_number(self, model: Model) -> int:
        """The number of what served: bundle, weights, version, cohort."""
        return self._models.number(model)

    def add(self, made: Chunk, outputs: NDArray[np.float32], rows: Sequence[NDArray[np.uint8]]) -> None:
        """Store new samples; ``made`` has its number and columns, where its features go is decided here.

        Args:
            rows: their features, in portions one after the other.
        """
        views = [some.data.cast("B") for some in rows if some.size]
        segment, start = self._files.append(views)
        tail = self.chunks[-1] if self.chunks else None
        if tail is not None and self._grows(tail, made, segment, start, outputs):
            self._grow(tail, made, outputs, views)
            return
        made.marks = marked([BEGIN], views, made.row_bytes)
        made.segment, made.start, made.checksum = segment, start, made.marks[-1][1]
        self.outputs.hold(made.first, outputs)
        write_chunk(self._db, made, outputs)
        self.chunks.append(made)
        self._firsts.append(made.first)
        self.places.update(zip(made.ids, range(made.first, made.end), strict=True))

    def sync(self) -> None:
        """Bring the features written since the start to the disk."""
        self._files.sync()

    def stored(self, seq: int) -> tuple[Chunk, int] | None:
        """The chunk of a recent sample, and its row there; None: it is not there any more."""
        number = bisect_right(self._firsts, seq) - 1
        if number < 0 or seq <= self.passed or seq >= self.chunks[number].end:
            return None
        chunk = self.chunks[number]
        row = seq - chunk.first
        return None if chunk.stages[row] == Stage.GONE else (chunk, row)

    def end_of(self, seq: int, most_samples: int) -> int:
        """The insertion number after the chunk that a sample lies in; 0 for a chunk of more samples."""
        number = bisect_right(self._firsts, seq) - 1
        chunk = self.chunks[number] if number >= 0 else None
        return chunk.end if chunk is not None and len(chunk.ids) <= most_samples else 0

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

    def features(self, chunk: Chunk, rows: NDArray[np.intp]) -> NDArray[np.uint8] | None:
        """(k, row_bytes) the features of some rows, which rise; None: they are lost."""
        if chunk.layout == LOST:
            return None
        marks = chunk.marks or [BEGIN, (len(chunk.ids), chunk.checksum)]
        try:
            return self._segments.read_some(chunk.segment, chunk.start, chunk.row_bytes, marks, rows)
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
                delete_chunk(self._db, chunk.first)
        self.passed = last
        set_number(self._db, PASSED, last)

    def flush(self) -> None:
        """Write what labels and retention have changed."""
        if self._dirty:
            write_joined(self._db, self._dirty.values())
            self._dirty.clear()

    def remove_files(self) -> None:
        """Remove the files whose last sample left in a transaction that was committed."""
        self._files.remove()

    def _by_chunk(self, seqs: NDArray[np.int64]) -> Iterator[tuple[Chunk, NDArray[np.intp], NDArray[np.intp]]]:
        """Chunks, which entries are of each, and their rows there."""
        of_chunk = np.searchsorted(self._firsts, seqs, side="right") - 1
        for number in sorted(set(of_chunk.tolist())):
            chunk = self.chunks[number]
            entries = np.flatnonzero(of_chunk == number)
            yield chunk, entries, seqs[entries] - chunk.first

    def _grows(self, tail: Chunk, made: Chunk, segment: int, start: int, outputs: NDArray[np.float32]) -> bool:
        if tail.segment != segment or tail.model != made.model or tail.layout != made.layout or tail.end != made.first:
            return False
        n = len(tail.ids)
        if n >= GROWN_SAMPLES or start != tail.start + n * tail.row_bytes:
            return False
        held = self.outputs.of(tail)
        return held is not None and held.shape[1] == outputs.shape[1] and held.nbytes < GROWN_BYTES

    def _grow(self, tail: Chunk, made: Chunk, outputs: NDArray[np.float32], views: Sequence[memoryview]) -> None:
        made.marks = marked(tail.marks or [BEGIN, (len(tail.ids), tail.checksum)], views, made.row_bytes)
        made.checksum = made.marks[-1][1]
        held = self.outputs.of(tail)
        whole = outputs if held is None else np.concatenate([held, outputs])
        tail.grown(made)
        self.outputs.hold(tail.first, whole)
        write_chunk(self._db, tail, whole)
        self._dirty.pop(tail.first, None)
        self.places.update(zip(made.ids, range(made.first, made.end), strict=True))

    def _used_files(self) -> set[int]:
        return {chunk.segment for chunk in self.chunks}

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
        self._files.left(chunk.segment)

    def _forget(self, chunk: Chunk, rows: range) -> None:
        ids = chunk.ids[rows.start : rows.stop]
        places = range(chunk.first + rows.start, chunk.first + rows.stop)
        if list(map(self.places.get, ids)) != list(places):  # some are gone, or stored again under another number
            ids = [name for name, place in zip(ids, places, strict=True) if self.places.get(name) == place]
        for name in ids:
            del self.places[name]

    def _lose(self, chunk: Chunk, problem: str) -> None:
        """Its features are not what was written: its samples are known and monitored, and never trained on."""
        _log.error("features_lost", samples=len(chunk.ids), first=chunk.ids[0], problem=problem)
        mark_lost(self._db, chunk)
        take_numbers(self._db, SPOILT, len(chunk.ids))

    def _drop(self, first: int, problem: str) -> None:
        _log.error("chunk_dropped", number=first, problem=problem)
        delete_chunk(self._db, first)
        take_numbers(self._db, SPOILT, 1)
