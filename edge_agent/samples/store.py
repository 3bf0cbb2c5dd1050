"""The replay store: what was served, its late labels, and what may be trained on."""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np

from edge_agent.errors import DataError
from edge_agent.link.database import Database
from edge_agent.samples.join import ARRIVAL, LabelJoin, count, known_ids
from edge_agent.samples.layout import FeatureLayout, finite_rows
from edge_agent.samples.reading import evaluation_set, feature_set, insertion_of, training_set, usable_count
from edge_agent.samples.record import (
    ID_CHARS,
    FeatureSet,
    Label,
    LabelledRow,
    Part,
    Predicted,
    SampleBatch,
    SampleSet,
    StoreCounts,
    is_sample_id,
)
from edge_agent.samples.reservoir import Reservoir
from edge_agent.samples.retention import Retention, Room
from edge_agent.samples.selection import NEWEST, Mixture
from edge_agent.samples.split import part_of
from edge_agent.samples.tables import COMPONENT, TABLES, Stage, last_number, raise_number, take_numbers
from edge_agent.wire.manifest import TensorSpec

MIB = 1024 * 1024
SAMPLE = "sample"
ORIGINS_KEPT = 100
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
        self._join = LabelJoin(db, classes=classes, task_classes=task_classes, ignored=ignored_label)
        room = Room(max(1, max_samples), reservoir_samples, unlabelled_samples)
        room = room.within(max(1, max_bytes // stored_bytes(self._layout.row_bytes)))
        with db.transaction():
            db.execute("INSERT OR IGNORE INTO layout (digest) VALUES (?)", (self._layout.digest,))
            db.execute("DELETE FROM model WHERE model NOT IN (SELECT model FROM sample)")
            reservoir = Reservoir(
                db,
                capacity=room.reservoir,
                proof_share=proof_share,
                layout=self._layout_number(),
                classed=classes is not None,
                seed=reservoir_seed,
            )
        self._retention = Retention(db, reservoir, room, label_wait_s=label_wait_s)

    def add(self, batch: SampleBatch, predicted: Predicted, now_s: float) -> list[LabelledRow]:
        """Store served samples; those whose label was there before are returned, joined.

        A sample whose id is stored already is ignored and counted.

        Raises:
            DataError: lengths, shapes, an id or a time are wrong; nothing is stored then.
        """
        _check(batch, predicted)
        with self._db.transaction():
            known = known_ids(self._db, batch.ids)
            fresh = list(
                {name: row for row, name in reversed(list(enumerate(batch.ids))) if name not in known}.values()
            )
            fresh.sort()
            count(self._db, "duplicate_samples", len(batch.ids) - len(fresh))
            seqs = self._insert(batch, predicted, fresh, now_s)
            joined = self._join.meet(seqs)
            self._retention.apply(last_number(self._db, SAMPLE), now_s)
        return joined

    def label(self, labels: Sequence[Label], now_s: float) -> list[LabelledRow]:
        """Take labels as they come; those that met a sample are returned, in order of arrival.

        Late, out of order, before the sample, twice: all are taken, the first valid one stands.
        A label that is no class or not finite is refused (logged by name) and counted.
        """
        with self._db.transaction():
            joined = self._join.arrive(labels, now_s)
            self._join.expire(now_s - self._label_wait_s)
        return joined

    def labelled_since(self, cursor: int, limit: int) -> list[LabelledRow]:
        """At most ``limit`` labelled samples with an arrival number above ``cursor``, in order."""
        return self._join.since(cursor, limit)

    def resume_after(self, cursor: int) -> None:
        """Give out arrival numbers above ``cursor`` only.

        To be called at start with the consumer's cursor: after a power cut this file may be
        older than the cursor, and its next labels would else be passed over.
        """
        with self._db.transaction():
            raise_number(self._db, ARRIVAL, cursor)

    def trainable_count(self, from_sample: str | None, *, task: str | None = None) -> int:
        """Labelled samples of the train part inserted from that sample on; None: all. ``task``: of that one alone.

        The place of a sample that was asked for once is remembered after its eviction. One that
        the store has lost (power cut) counts as inserted now: nothing older is trained on.
        """
        with self._db.transaction():
            if from_sample is not None:
                self._remember(from_sample)
            return usable_count(self._db, self._layout, Part.TRAIN, from_sample, task=task)

    def training_set(
        self, from_sample: str | None, limit: int, *, task: str | None = None, mixture: Mixture = NEWEST
    ) -> SampleSet:
        """The newest ``limit`` of :meth:`trainable_count`'s samples, oldest first; older ones if the mixture asks."""
        return training_set(self._db, self._layout, from_sample=from_sample, limit=limit, task=task, mixture=mixture)

    def feature_set(self, from_sample: str | None, limit: int, *, task: str | None = None) -> FeatureSet:
        """The newest ``limit`` samples of the train part, with labels or without."""
        return feature_set(self._db, self._layout, from_sample=from_sample, limit=limit, task=task)

    def evaluation_set(self, since_sample: str | None, limit: int) -> SampleSet:
        """The newest labelled holdout samples; if there is none, those of the proof part."""
        return evaluation_set(self._db, self._layout, since_sample=since_sample, limit=limit)

    @property
    def counts(self) -> StoreCounts:
        """What is held, dropped and refused. Cost: reads an index of all samples."""
        with self._db.transaction():
            samples, labelled = self._db.query("SELECT count(*), count(arrival) FROM sample")[0]
            stages: dict[int, int] = dict(self._db.query("SELECT stage, count(*) FROM sample GROUP BY stage"))
            return StoreCounts(
                samples=samples,
                pending=samples - labelled,
                labelled=labelled,
                reservoir=stages.get(Stage.KEPT, 0),
                unlabelled=stages.get(Stage.UNLABELLED, 0),
                early_labels=self._db.query("SELECT count(*) FROM early_label")[0][0],
                duplicate_samples=last_number(self._db, "duplicate_samples"),
                repeated_labels=last_number(self._db, "repeated_labels"),
                refused_labels=last_number(self._db, "refused_labels"),
                unmatched_labels=last_number(self._db, "unmatched_labels"),
                expired_samples=last_number(self._db, "expired_samples"),
                evicted_samples=last_number(self._db, "evicted_samples"),
            )

    @property
    def refused_labels(self) -> int:
        """That of :attr:`counts` alone, read from one row."""
        return last_number(self._db, "refused_labels")

    def _insert(self, batch: SampleBatch, predicted: Predicted, rows: list[int], now_s: float) -> dict[str, int]:
        if not rows:
            return {}
        first = take_numbers(self._db, SAMPLE, len(rows))
        seqs = {batch.ids[row]: first + place for place, row in enumerate(rows)}
        outputs = np.ascontiguousarray(predicted.outputs, dtype="<f4").reshape(len(batch.ids), -1)
        parts, tasks = self._parts(batch), batch.tasks or [None] * len(batch.ids)
        layout, model = self._layout_number(), self._model_number(predicted)
        self._db.execute_values(
            "INSERT INTO sample (seq, id, time_s, part, layout, model, added_s, output, task)",
            [
                (
                    seqs[batch.ids[row]],
                    batch.ids[row],
                    batch.times[row],
                    parts[row].value,
                    layout,
                    model,
                    now_s,
                    outputs[row].tobytes(),
                    tasks[row],
                )
                for row in rows
            ],
        )
        packed = self._layout.pack(batch.features, rows)
        self._db.execute_values("INSERT INTO features", list(zip(seqs.values(), packed, strict=True)))
        return seqs

    def _parts(self, batch: SampleBatch) -> list[Part]:
        fit = finite_rows(batch.features, len(batch.ids))
        groups = batch.groups or [None] * len(batch.ids)
        holdouts = batch.holdouts or [False] * len(batch.ids)
        parts = [
            part_of(name, group, holdout=holdout, proof_share=self._proof_share)
            for name, group, holdout in zip(batch.ids, groups, holdouts, strict=True)
        ]
        return [
            part if ok or part is Part.HOLDOUT else Part.UNFIT for part, ok in zip(parts, fit.tolist(), strict=True)
        ]

    def _layout_number(self) -> int:
        return int(self._db.query("SELECT layout FROM layout WHERE digest = ?", (self._layout.digest,))[0][0])

    def _model_number(self, predicted: Predicted) -> int:
        key = (predicted.bundle, predicted.weights, predicted.version, predicted.cohort)
        where = "bundle = ? AND weights = ? AND version = ? AND cohort = ?"
        found = self._db.query(f"SELECT model FROM model WHERE {where}", key)
        if not found:
            self._db.execute("INSERT INTO model (bundle, weights, version, cohort) VALUES (?, ?, ?, ?)", key)
            found = self._db.query(f"SELECT model FROM model WHERE {where}", key)
        return int(found[0][0])

    def _remember(self, sample_id: str) -> None:
        seq = insertion_of(self._db, sample_id)
        if seq is None:
            seq = last_number(self._db, SAMPLE) + 1
        self._db.execute("INSERT OR IGNORE INTO origin (id, seq) VALUES (?, ?)", (sample_id, seq))
        self._db.execute("DELETE FROM origin WHERE place <= (SELECT max(place) FROM origin) - ?", (ORIGINS_KEPT,))


def stored_bytes(row_bytes: int) -> int:
    """What a sample takes on disk, about: SQLite's pages hold whole rows of features, and the index entries."""
    rows_a_page = _PAGE_BYTES // max(row_bytes, 1)
    pages = -(-row_bytes // _PAGE_BYTES)
    return _OVERHEAD_BYTES + (_PAGE_BYTES // rows_a_page if rows_a_page else pages * _PAGE_BYTES)


def _check(batch: SampleBatch, predicted: Predicted) -> None:
    n = len(batch.ids)
    lengths = {len(batch.times), len(predicted.outputs), *(len(array) for array in batch.features.values())}
    lengths |= {len(column) for column in (batch.groups, batch.holdouts, batch.tasks) if column}
    if lengths != {n}:
        raise DataError(f"{n} sample ids stand beside columns of {sorted(lengths)} rows")
    for name, time_s in zip(batch.ids, batch.times, strict=True):
        if not is_sample_id(name):
            raise DataError(f"sample id {name[:ID_CHARS]!r} must have 1 to {ID_CHARS} characters, none a control one")
        if not math.isfinite(time_s):
            raise DataError(f"sample {name!r}: time {time_s} is not finite")
