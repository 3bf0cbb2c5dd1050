"""Reading labelled samples; also from the training worker's process, so that the parent copies nothing."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from edge_agent.link.database import Database, open_read_only
from edge_agent.samples.layout import FeatureLayout
from edge_agent.samples.record import Part, SampleSet
from edge_agent.wire.manifest import TensorSpec


def read_training_set(
    path: Path, inputs: Sequence[TensorSpec], *, from_sample: str | None, limit: int, task: str | None = None
) -> SampleSet:
    """The newest labelled samples of the train part.

    Args:
        path: the store's file, perhaps in use by the agent.
        inputs: the model's; samples stored for other inputs are left out.
        from_sample: only that sample and those inserted after it; None: all. One that the store
            does not know gives none: better nothing than samples from before the drift.
        limit: at most so many, the newest.
        task: only samples of that task; None: of all.

    Raises:
        StorageError: the file cannot be read.
    """
    with closing(open_read_only(path)) as db:
        return training_set(db, FeatureLayout(inputs), from_sample=from_sample, limit=limit, task=task)


def read_evaluation_set(
    path: Path, inputs: Sequence[TensorSpec], *, since_sample: str | None, limit: int, task: str | None = None
) -> SampleSet:
    """The newest labelled holdout samples; if there is none, those of the proof part.

    Args and raises: as :func:`read_training_set`.
    """
    with closing(open_read_only(path)) as db:
        return evaluation_set(db, FeatureLayout(inputs), since_sample=since_sample, limit=limit, task=task)


def training_set(
    db: Database, layout: FeatureLayout, *, from_sample: str | None, limit: int, task: str | None = None
) -> SampleSet:
    """:func:`read_training_set` on an open database."""
    with db.transaction():
        return _newest(db, layout, Part.TRAIN, from_sample, limit, task)


def evaluation_set(
    db: Database, layout: FeatureLayout, *, since_sample: str | None, limit: int, task: str | None = None
) -> SampleSet:
    """:func:`read_evaluation_set` on an open database."""
    with db.transaction():
        holdout = _newest(db, layout, Part.HOLDOUT, since_sample, limit, task)
        return holdout if holdout.ids else _newest(db, layout, Part.PROOF, since_sample, limit, task)


def usable_count(
    db: Database, layout: FeatureLayout, part: Part, from_sample: str | None, *, task: str | None = None
) -> int:
    """How many labelled samples a set without limit would have."""
    first = insertion_of(db, from_sample)
    if first is None:
        return 0
    rows = db.query(
        "SELECT count(*) FROM sample WHERE part = ? AND layout = (SELECT layout FROM layout WHERE digest = ?)"
        " AND seq >= ? AND arrival IS NOT NULL AND (? IS NULL OR task = ?)",
        (part.value, layout.digest, first, task, task),
    )
    return int(rows[0][0])


def insertion_of(db: Database, sample_id: str | None) -> int | None:
    """The insertion number of a sample, known for those it was asked for even after eviction; None: 0."""
    if sample_id is None:
        return 0
    rows = db.query(
        "SELECT seq FROM sample WHERE id = ? UNION ALL SELECT seq FROM origin WHERE id = ? LIMIT 1",
        (sample_id, sample_id),
    )
    return int(rows[0][0]) if rows else None


def _newest(
    db: Database, layout: FeatureLayout, part: Part, from_sample: str | None, limit: int, task: str | None
) -> SampleSet:
    first = insertion_of(db, from_sample)
    rows = [] if first is None else _rows(db, layout, part, first, limit, task)
    rows.reverse()
    return SampleSet(
        features=layout.unpack([row[2] for row in rows]),
        labels=np.array([row[1] for row in rows]),
        ids=[row[0] for row in rows],
        part=part,
        tasks=[row[3] for row in rows],
    )


def _rows(
    db: Database, layout: FeatureLayout, part: Part, first: int, limit: int, task: str | None
) -> list[tuple[str, float, bytes, str | None]]:
    rows = db.query(
        "SELECT id, label, data, task FROM sample JOIN features USING (seq)"
        " WHERE part = ? AND layout = (SELECT layout FROM layout WHERE digest = ?) AND seq >= ?"
        " AND arrival IS NOT NULL AND (? IS NULL OR task = ?) ORDER BY seq DESC LIMIT ?",
        (part.value, layout.digest, first, task, task, limit),
    )
    return [(row[0], row[1], row[2], row[3]) for row in rows]
