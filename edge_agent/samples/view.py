"""One look at the store: which samples there are, chosen, and their features put together."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.link.database import Database
from edge_agent.samples.chunk import PART_NUMBERS, Chunk
from edge_agent.samples.chunk_table import read_chunks
from edge_agent.samples.layout import FeatureLayout
from edge_agent.samples.record import FeatureSet, Part, SampleSet
from edge_agent.samples.segments import SegmentGone, Segments
from edge_agent.samples.selection import NEWEST, Mixture, Row, drawn, newest
from edge_agent.samples.tables import PASSED, Stage, last_number

_SEQS_A_QUERY = 500
_OF_THE_OLDER = "part = ? AND layout = ? AND (? IS NULL OR task = ?)"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Found:
    """Samples as they are stored.

    Attributes:
        rows: (n, row_bytes) features.
        labels: n entries; None where no label has come.
    """

    ids: list[str]
    rows: NDArray[np.uint8]
    labels: list[float | int | None]
    tasks: list[str | None]


class View:
    """What a transaction sees of a store, of the samples of one input layout.

    A chunk whose features are not what was written is left out, and named in the log.

    Args:
        db: inside of a transaction as long as the view is used.
        layout: samples stored for other inputs are left out.
        absent_is_spoilt: a file of features that is not there costs its samples; else it is an error.
    """

    def __init__(
        self, db: Database, layout: FeatureLayout, segments: Segments, *, absent_is_spoilt: bool = False
    ) -> None:
        self._db = db
        self._layout = layout
        self._segments = segments
        self._spoilt = (DataError, SegmentGone) if absent_is_spoilt else DataError
        numbers = db.query("SELECT layout FROM layout WHERE digest = ?", (layout.digest,))
        self._number = int(numbers[0][0]) if numbers else 0
        self._passed = last_number(db, PASSED)
        self._every = read_chunks(db)[0]
        self._chunks = [chunk for chunk in self._every if chunk.layout == self._number]

    def training_set(
        self, *, from_sample: str | None, limit: int, task: str | None = None, mixture: Mixture = NEWEST
    ) -> SampleSet:
        """See :func:`edge_agent.samples.reading.read_training_set`."""
        return self._mixed(Part.TRAIN, Part.TRAIN, from_sample, limit, task, mixture)

    def evaluation_set(
        self, *, since_sample: str | None, limit: int, task: str | None = None, mixture: Mixture = NEWEST
    ) -> SampleSet:
        """See :func:`edge_agent.samples.reading.read_evaluation_set`."""
        holdout = self._mixed(Part.HOLDOUT, Part.PROOF, since_sample, limit, task, mixture)
        if len(holdout.ids) > holdout.rehearsed:
            return holdout
        return self._mixed(Part.PROOF, Part.PROOF, since_sample, limit, task, mixture)

    def feature_set(
        self, *, from_sample: str | None, limit: int, task: str | None = None, after: str | None = None
    ) -> FeatureSet:
        """See :func:`edge_agent.samples.reading.read_feature_set`."""
        first = self._insertion_of(from_sample)
        if first is None:
            return FeatureSet(self._layout.unpack([]), [])
        if after is not None:
            place = self._insertion_of(after)
            first = max(first, (self._passed if place is None else place) + 1)
        older = self._db.query(
            f"SELECT seq FROM sample WHERE {_OF_THE_OLDER} AND seq >= ? AND stage = {Stage.UNLABELLED:d} ORDER BY seq",
            (Part.TRAIN.value, self._number, task, task, first),
        )
        recent = [
            seq for chunk in self._chunks for seq in (chunk.first + self._rows(chunk, Part.TRAIN, first, task)).tolist()
        ]
        chosen = [*(row[0] for row in older), *recent]
        found = self._stored(chosen[max(0, len(chosen) - limit) :])
        return FeatureSet(self._layout.arrays(found.rows), found.ids)

    def knows(self, sample_id: str) -> bool:
        """Whether a sample's place is known: it is stored, or was asked for by id while it was."""
        return self._insertion_of(sample_id) is not None

    def _mixed(
        self, part: Part, old_part: Part, from_sample: str | None, limit: int, task: str | None, mixture: Mixture
    ) -> SampleSet:
        """New samples of one part, and old ones of the same or another."""
        first = self._insertion_of(from_sample)
        if first is None:
            return self._set(part, [], [])
        recent = newest(self._labelled(part, first, task), mixture.new(limit), balanced=mixture.balanced)
        count = mixture.old(len(recent), limit)
        older = self._kept(old_part, task) if count else []
        if from_sample is not None:
            older = [row for row in older if row[0] < first]
        return self._set(part, drawn(older, count, np.random.default_rng(mixture.seed)), recent)

    def _labelled(self, part: Part, first: int, task: str | None) -> list[Row]:
        """Insertion numbers and labels of the recent ones, oldest first."""
        rows: list[Row] = []
        for chunk in self._chunks:
            chosen = self._rows(chunk, part, first, task)
            chosen = chosen[(chunk.arrivals[chosen] > 0) & (chunk.stages[chosen] == Stage.RECENT)]
            rows += zip((chunk.first + chosen).tolist(), chunk.label_list(chosen), strict=True)
        return rows

    def _kept(self, part: Part, task: str | None) -> list[Row]:
        """Insertion numbers and labels of the reservoir's, oldest first."""
        rows = self._db.query(
            f"SELECT seq, label FROM sample WHERE {_OF_THE_OLDER} AND stage = {Stage.KEPT:d}"
            " AND arrival IS NOT NULL ORDER BY seq",
            (part.value, self._number, task, task),
        )
        return [(row[0], row[1]) for row in rows]

    def _rows(self, chunk: Chunk, part: Part, first: int, task: str | None) -> NDArray[np.intp]:
        """The rows of a chunk that are recent, of that part and task, and not before ``first``."""
        return chunk.rows_of(PART_NUMBERS[part], max(first, self._passed + 1), task)

    def _insertion_of(self, sample_id: str | None) -> int | None:
        """The insertion number of a sample, known for those it was asked for even after eviction; None: 0."""
        if sample_id is None:
            return 0
        return find_insertion(self._db, sample_id, self._recent_number(sample_id))

    def _recent_number(self, sample_id: str) -> int | None:
        for chunk in reversed(self._every):
            if sample_id in chunk.ids:
                row = len(chunk.ids) - 1 - chunk.ids[::-1].index(sample_id)
                if chunk.first + row > self._passed and chunk.stages[row] != Stage.GONE:
                    return chunk.first + row
        return None

    def _set(self, part: Part, old: list[int], recent: list[int]) -> SampleSet:
        before, after = self._stored(old), self._stored(recent)
        return SampleSet(
            features=self._layout.arrays(np.concatenate([before.rows, after.rows])),
            labels=np.array([*before.labels, *after.labels]),
            ids=[*before.ids, *after.ids],
            part=part,
            tasks=[*before.tasks, *after.tasks],
            rehearsed=len(before.ids),
        )

    def _stored(self, seqs: Sequence[int]) -> _Found:
        """Samples by their insertion numbers, which rise; those that are spoilt are left out."""
        wanted = np.array(seqs, np.int64)
        parts = self._rows_of_their_own(wanted[wanted <= self._passed].tolist())
        for chunk in self._chunks:
            begin, end = np.searchsorted(wanted, [max(chunk.first, self._passed + 1), chunk.end])
            if begin < end:
                parts += self._unpacked(chunk, wanted[begin:end] - chunk.first)
        return _Found(
            ids=[name for part in parts for name in part.ids],
            rows=np.concatenate([part.rows for part in parts])
            if parts
            else np.zeros((0, self._layout.row_bytes), np.uint8),
            labels=[label for part in parts for label in part.labels],
            tasks=[task for part in parts for task in part.tasks],
        )

    def _unpacked(self, chunk: Chunk, rows: NDArray[np.intp]) -> list[_Found]:
        try:
            whole = self._segments.read(
                chunk.segment, chunk.start, len(chunk.ids), self._layout.row_bytes, chunk.checksum
            )
        except self._spoilt as error:
            _log.error("%d samples left out from %r on: %s", len(rows), chunk.ids[0], error)
            return []
        chosen = rows.tolist()
        labels = [chunk.label(row) if chunk.arrivals[row] else None for row in chosen]
        return [_Found([chunk.ids[row] for row in chosen], whole[rows], labels, [chunk.task(row) for row in chosen])]

    def _rows_of_their_own(self, seqs: Sequence[int]) -> list[_Found]:
        found: list[_Found] = []
        for start in range(0, len(seqs), _SEQS_A_QUERY):
            portion = seqs[start : start + _SEQS_A_QUERY]
            marks = ",".join("?" * len(portion))
            rows = self._db.query(
                f"SELECT id, label, data, task FROM sample JOIN features USING (seq) WHERE seq IN ({marks})"
                " ORDER BY seq",
                portion,
            )
            features = self._layout.rows([row[2] for row in rows])
            found.append(_Found([row[0] for row in rows], features, [row[1] for row in rows], [row[3] for row in rows]))
        return found


def find_insertion(db: Database, sample_id: str, recent: int | None) -> int | None:
    """The insertion number of a sample: of a recent one, one with a row of its own, or one that was asked for."""
    if recent is not None:
        return recent
    rows = db.query(
        "SELECT seq FROM sample WHERE id = ? UNION ALL SELECT seq FROM origin WHERE id = ? LIMIT 1",
        (sample_id, sample_id),
    )
    return int(rows[0][0]) if rows else None
