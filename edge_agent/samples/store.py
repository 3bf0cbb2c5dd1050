"""The replay store: what was served, its late labels, and what may be trained on."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from edge_agent.link.database import Database
from edge_agent.samples.chunk import PART_NUMBERS
from edge_agent.samples.join import LabelJoin, count
from edge_agent.samples.layout import FeatureLayout
from edge_agent.samples.migration import move_old_rows
from edge_agent.samples.older import Older
from edge_agent.samples.recent import SPOILT, Recent
from edge_agent.samples.record import (
    FeatureSet,
    Label,
    LabelledRow,
    Part,
    Predicted,
    SampleBatch,
    SampleSet,
    StoreCounts,
)
from edge_agent.samples.reservoir import Reservoir
from edge_agent.samples.retention import Retention, Room
from edge_agent.samples.segments import SEGMENT_BYTES, Segments
from edge_agent.samples.selection import NEWEST, Mixture
from edge_agent.samples.served_batch import check_batch, made_chunk, primary_outputs
from edge_agent.samples.tables import ARRIVAL, COMPONENT, SAMPLE, TABLES, Stage, last_number
from edge_agent.samples.view import View, find_insertion
from edge_agent.wire.manifest import TensorSpec

MIB = 1024 * 1024
ORIGINS_KEPT = 100
SEGMENTS_AT_LEAST = 16
_PAGE_BYTES = 4096
_OVERHEAD_BYTES = 512


class SampleStore:
    """Samples in a database of their own, with their predictions and labels; usable from any thread.

    Bounded: the newest ``max_samples`` insertions are held; of the older ones a reservoir keeps a uniform sample of
    the labelled (see :class:`Reservoir`), and the newest without a label stay for what needs none. All of it is
    less where it would pass ``max_bytes``.

    Args:
        db: opened with ``synchronous="NORMAL"``: a power cut may cost the last seconds.
        inputs: the active bundle's; samples stored for other inputs are kept but not trained on.
        classes: valid labels are 0..classes-1; None: any number that is finite as float32 (regression).
        proof_share: share of the samples (by hash of group or id) that training never reads.
        max_samples: at least 1.
        label_wait_s: by the clock that the caller passes as ``now_s``, which should be running time: a wall clock
            that jumps would end every wait at once. One of the train part without a label by then is unlabelled,
            another is dropped.
        max_bytes: bound on the file, about (see :func:`stored_bytes`).
        reservoir_samples: older labelled samples kept, of the train and proof parts.
        unlabelled_samples: samples of the train part kept whose label did not come in time.
        reservoir_seed: of a new database's reservoir; None: at random.
        task_classes: the number of classes of each task, where it is not ``classes``.
        ignored_label: a label that stands for none.

    Raises:
        DataError: an input has a free dimension besides the batch.
        StorageError: from here and every method: the database cannot be read or written.
    """

    def __init__(
        self,
        db: Database,
        *,
        inputs: Sequence[TensorSpec],
        classes: int | None,
        proof_share: float,
        max_samples: int,
        label_wait_s: float,
        max_bytes: int = 256 * MIB,
        reservoir_samples: int = 0,
        unlabelled_samples: int = 0,
        reservoir_seed: int | None = None,
        task_classes: Mapping[str, int] = MappingProxyType({}),
        ignored_label: int | None = None,
    ) -> None:
        db.define(COMPONENT, TABLES)
        self._db = db
        self._layout = FeatureLayout(inputs)
        self._proof_share = proof_share
        self._label_wait_s = label_wait_s
        self._changed_in = -1
        self._segments = Segments(db.path, most_bytes=min(SEGMENT_BYTES, max(1, max_bytes // SEGMENTS_AT_LEAST)))
        room = Room(max(1, max_samples), reservoir_samples, unlabelled_samples)
        room = room.within(max(1, max_bytes // stored_bytes(self._layout.row_bytes)))
        self._segments.prepare()
        move_old_rows(db, self._segments)
        with db.transaction():
            db.execute("INSERT OR IGNORE INTO layout (digest) VALUES (?)", (self._layout.digest,))
            db.execute("DELETE FROM model WHERE model NOT IN (SELECT model FROM sample UNION SELECT model FROM chunk)")
            self._number = int(db.query("SELECT layout FROM layout WHERE digest = ?", (self._layout.digest,))[0][0])
            self._older = Older(db)
            self._recent = Recent(db, self._segments)
            self._recent.begin()
            self._join = LabelJoin(
                db, self._recent, self._older, classes=classes, task_classes=task_classes, ignored=ignored_label
            )
            self._reservoir = Reservoir(
                db,
                self._older,
                capacity=room.reservoir,
                proof_share=proof_share,
                layout=self._number,
                classed=classes is not None,
                seed=reservoir_seed,
            )
        self._retention = Retention(db, self._recent, self._older, self._reservoir, room, label_wait_s=label_wait_s)

    def add(self, batch: SampleBatch, predicted: Predicted, now_s: float, *, settles: bool = True) -> list[LabelledRow]:
        """Store served samples; those whose label was there before are returned, joined.

        A sample whose id is stored already is ignored and counted.

        Args:
            settles: False: :meth:`settle` is called in the same transaction, after the labels that come with these.

        Raises:
            DataError: lengths, shapes, an id or a time are wrong; nothing is stored then.
        """
        check_batch(batch, predicted)
        with self._changing():
            fresh = self._fresh(batch.ids)
            features = self._matrices(batch, fresh)
            joined: list[LabelledRow] = []
            if batch.ids if fresh is None else fresh:
                model = (predicted.bundle, predicted.weights, predicted.version, predicted.cohort)
                made = made_chunk(
                    batch,
                    fresh,
                    first=self._recent.numbers.take(SAMPLE, sum(map(len, features))),
                    layout=self._number,
                    model=self._recent.model_number(model),
                    row_bytes=self._layout.row_bytes,
                    proof_share=self._proof_share,
                    now_s=now_s,
                )
                self._recent.add(made, primary_outputs(predicted, fresh), features)
                joined = self._join.meet(made.first, made.ids)
            if settles:
                self._retention.apply(self._recent.numbers.newest(), now_s)
            self._recent.flush()
        return joined

    def settle(self, now_s: float) -> None:
        """Bring what is held within its bounds.

        A sample leaves whether or not its label has come: labels of the same transaction are taken before, or those
        of a batch that is larger than the room would meet nothing.
        """
        with self._changing():
            self._retention.apply(self._recent.numbers.newest(), now_s)
            self._recent.flush()

    def label(self, labels: Sequence[Label], now_s: float) -> list[LabelledRow]:
        """Take labels as they come; those that met a sample are returned, in order of arrival.

        Late, out of order, before the sample, twice: all are taken, the first valid one stands.
        A label that is no class or not finite is refused (logged by name) and counted.
        """
        with self._changing():
            joined = self._join.arrive(labels, now_s)
            self._join.expire(now_s - self._label_wait_s)
            self._recent.flush()
        return joined

    def labelled_since(self, cursor: int, limit: int) -> list[LabelledRow]:
        """At most ``limit`` labelled samples with an arrival number above ``cursor``, in order."""
        with self._changing():
            return self._join.since(cursor, limit)

    def resume_after(self, cursor: int) -> None:
        """Give out arrival numbers above ``cursor`` only.

        To be called at start with the consumer's cursor: after a power cut this file may be
        older than the cursor, and its next labels would else be passed over.
        """
        with self._changing():
            self._recent.numbers.raise_to(ARRIVAL, cursor)

    def trainable_count(self, from_sample: str | None, *, task: str | None = None) -> int:
        """Labelled samples of the train part inserted from that sample on; None: all. ``task``: of that one alone.

        The place of a sample that was asked for once is remembered after its eviction. One that
        the store has lost (power cut) counts as inserted now: nothing older is trained on.
        """
        with self._changing():
            first = 0 if from_sample is None else self._remember(from_sample)
            return self._recent.count(self._number, PART_NUMBERS[Part.TRAIN], first, task)

    def training_set(
        self, from_sample: str | None, limit: int, *, task: str | None = None, mixture: Mixture = NEWEST
    ) -> SampleSet:
        """The newest ``limit`` of :meth:`trainable_count`'s samples, oldest first; older ones if the mixture asks."""
        with self._view() as view:
            return view.training_set(from_sample=from_sample, limit=limit, task=task, mixture=mixture)

    def feature_set(self, from_sample: str | None, limit: int, *, task: str | None = None) -> FeatureSet:
        """The newest ``limit`` samples of the train part, with labels or without."""
        with self._view() as view:
            return view.feature_set(from_sample=from_sample, limit=limit, task=task)

    def evaluation_set(self, since_sample: str | None, limit: int) -> SampleSet:
        """The newest labelled holdout samples; if there is none, those of the proof part."""
        with self._view() as view:
            return view.evaluation_set(since_sample=since_sample, limit=limit)

    @property
    def counts(self) -> StoreCounts:
        """What is held, dropped and refused. Cost: O(samples held), in memory but for the older ones."""
        with self._changing():
            older = self._db.query("SELECT stage, count(*), count(arrival) FROM sample GROUP BY stage")
            recent = self._recent.stages()
            stages = {stage: int(recent[:, stage].sum()) for stage in Stage}
            labelled = int(recent[1].sum())
            for stage, samples, with_label in older:
                stages[Stage(stage)] += samples
                labelled += with_label
            samples = sum(stages.values())
            return StoreCounts(
                samples=samples,
                pending=samples - labelled,
                labelled=labelled,
                reservoir=stages[Stage.KEPT],
                unlabelled=stages[Stage.UNLABELLED],
                early_labels=self._db.query("SELECT count(*) FROM early_label")[0][0],
                duplicate_samples=last_number(self._db, "duplicate_samples"),
                repeated_labels=last_number(self._db, "repeated_labels"),
                refused_labels=last_number(self._db, "refused_labels"),
                unmatched_labels=last_number(self._db, "unmatched_labels"),
                expired_samples=last_number(self._db, "expired_samples"),
                evicted_samples=last_number(self._db, "evicted_samples"),
                spoilt_samples=last_number(self._db, SPOILT),
            )

    @property
    def refused_labels(self) -> int:
        """That of :attr:`counts` alone, read from one row."""
        return last_number(self._db, "refused_labels")

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """A transaction in which what is held in memory is what the database holds."""
        with self._db.transaction():
            if self._db.undone == self._changed_in:
                self._older.load()
                self._reservoir.load()
                self._recent.load()
                self._join.load()
            self._changed_in = self._db.transactions
            self._recent.remove_files()
            yield

    @contextmanager
    def _view(self) -> Iterator[View]:
        with self._db.transaction():
            yield View(self._db, self._layout, self._segments, absent_is_spoilt=True)

    def _matrices(self, batch: SampleBatch, rows: list[int] | None) -> list[NDArray[np.uint8]]:
        """The features of some rows as they are stored, in one portion or more; None: of all rows."""
        if rows is not None:
            return [self._layout.matrix(batch.whole, rows)]
        return [self._layout.matrix(features, None) for features in batch.in_portions]

    def _fresh(self, ids: Sequence[str]) -> list[int] | None:
        """Rows of samples that are not stored, each once; None: all of them."""
        recent, older = self._recent.places, self._older.seqs
        if len(set(ids)) == len(ids) and recent.keys().isdisjoint(ids) and (not older or older.keys().isdisjoint(ids)):
            return None
        rows = {name: row for row, name in reversed(list(enumerate(ids))) if name not in recent and name not in older}
        count(self._db, "duplicate_samples", len(ids) - len(rows))
        return sorted(rows.values())

    def _remember(self, sample_id: str) -> int:
        seq = find_insertion(self._db, sample_id, self._recent.places.get(sample_id))
        if seq is None:
            seq = self._recent.numbers.newest() + 1
        self._db.execute("INSERT OR IGNORE INTO origin (id, seq) VALUES (?, ?)", (sample_id, seq))
        self._db.execute("DELETE FROM origin WHERE place <= (SELECT max(place) FROM origin) - ?", (ORIGINS_KEPT,))
        return seq


def stored_bytes(row_bytes: int) -> int:
    """What a sample takes on disk, about: SQLite's pages hold whole rows of features, and the index entries."""
    rows_a_page = _PAGE_BYTES // max(row_bytes, 1)
    pages = -(-row_bytes // _PAGE_BYTES)
    return _OVERHEAD_BYTES + (_PAGE_BYTES // rows_a_page if rows_a_page else pages * _PAGE_BYTES)
