"""Reading stored samples; also from the training worker's process, so that the parent copies nothing."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np

from edge_agent.link.database import Database, open_read_only
from edge_agent.samples.layout import FeatureLayout
from edge_agent.samples.record import FeatureSet, Part, SampleSet
from edge_agent.samples.selection import NEWEST, Mixture, Row, drawn, newest
from edge_agent.samples.tables import Stage
from edge_agent.wire.manifest import TensorSpec

_SEQS_A_QUERY = 500
_FITTING = "part = ? AND layout = (SELECT layout FROM layout WHERE digest = ?) AND (? IS NULL OR task = ?)"


def read_training_set(
    path: Path,
    inputs: Sequence[TensorSpec],
    *,
    from_sample: str | None,
    limit: int,
    task: str | None = None,
    mixture: Mixture = NEWEST,
) -> SampleSet:
    """The newest labelled samples of the train part, and older ones from the reservoir if the mixture asks.

    Args:
        path: the store's file, perhaps in use by the agent.
        inputs: the model's; samples stored for other inputs are left out.
        from_sample: only that sample and those inserted after it, and from the reservoir only what is older; None:
            all. One that the store does not know gives none: better nothing than samples from before the drift.
        limit: at most so many.
        task: only samples of that task; None: of all.
        mixture: how much of the past goes with the newest, and whether the classes are balanced.

    Raises:
        StorageError: the file cannot be read.
    """
    with closing(open_read_only(path)) as db:
        return training_set(db, FeatureLayout(inputs), from_sample=from_sample, limit=limit, task=task, mixture=mixture)


def read_evaluation_set(
    path: Path,
    inputs: Sequence[TensorSpec],
    *,
    since_sample: str | None,
    limit: int,
    task: str | None = None,
    mixture: Mixture = NEWEST,
) -> SampleSet:
    """The newest labelled holdout samples; if there is none, those of the proof part.

    If the mixture rehearses, older ones of the proof part go with them: what is rehearsed should not be forgotten.

    Args and raises: as :func:`read_training_set`.
    """
    with closing(open_read_only(path)) as db:
        return evaluation_set(
            db, FeatureLayout(inputs), since_sample=since_sample, limit=limit, task=task, mixture=mixture
        )


def read_feature_set(
    path: Path, inputs: Sequence[TensorSpec], *, from_sample: str | None, limit: int, task: str | None = None
) -> FeatureSet:
    """The newest samples of the train part whether or not they have labels, for objectives that need none.

    Args and raises: as :func:`read_training_set`.
    """
    with closing(open_read_only(path)) as db:
        return feature_set(db, FeatureLayout(inputs), from_sample=from_sample, limit=limit, task=task)


def training_set(
    db: Database,
    layout: FeatureLayout,
    *,
    from_sample: str | None,
    limit: int,
    task: str | None = None,
    mixture: Mixture = NEWEST,
) -> SampleSet:
    """:func:`read_training_set` on an open database."""
    with db.transaction():
        return _mixed(db, layout, Part.TRAIN, Part.TRAIN, from_sample, limit, task, mixture)


def evaluation_set(
    db: Database,
    layout: FeatureLayout,
    *,
    since_sample: str | None,
    limit: int,
    task: str | None = None,
    mixture: Mixture = NEWEST,
) -> SampleSet:
    """:func:`read_evaluation_set` on an open database."""
    mixture = replace(mixture, balanced=False)
    with db.transaction():
        holdout = _mixed(db, layout, Part.HOLDOUT, Part.PROOF, since_sample, limit, task, mixture)
        if len(holdout.ids) > holdout.rehearsed:
            return holdout
        return _mixed(db, layout, Part.PROOF, Part.PROOF, since_sample, limit, task, mixture)


def feature_set(
    db: Database, layout: FeatureLayout, *, from_sample: str | None, limit: int, task: str | None = None
) -> FeatureSet:
    """:func:`read_feature_set` on an open database."""
    with db.transaction():
        first = insertion_of(db, from_sample)
        if first is None:
            return FeatureSet(layout.unpack([]), [])
        rows = db.query(
            f"SELECT seq FROM sample WHERE {_FITTING} AND seq >= ? AND stage <> {Stage.KEPT:d}"
            " ORDER BY seq DESC LIMIT ?",
            (Part.TRAIN.value, layout.digest, task, task, first, limit),
        )
        stored = _stored(db, sorted(row[0] for row in rows))
        return FeatureSet(layout.unpack([row[2] for row in stored]), [row[0] for row in stored])


def usable_count(
    db: Database, layout: FeatureLayout, part: Part, from_sample: str | None, *, task: str | None = None
) -> int:
    """How many recent labelled samples a set without limit would have."""
    first = insertion_of(db, from_sample)
    if first is None:
        return 0
    rows = db.query(
        f"SELECT count(*) FROM sample WHERE {_FITTING} AND stage = {Stage.RECENT:d} AND seq >= ?"
        " AND arrival IS NOT NULL",
        (part.value, layout.digest, task, task, first),
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


def _mixed(
    db: Database,
    layout: FeatureLayout,
    part: Part,
    old_part: Part,
    from_sample: str | None,
    limit: int,
    task: str | None,
    mixture: Mixture,
) -> SampleSet:
    """New samples of one part, and old ones of the same or another."""
    first = insertion_of(db, from_sample)
    if first is None:
        return _set(db, layout, part, [], [])
    rows = _labelled(db, layout, part, Stage.RECENT, first, task)
    recent = newest(rows, mixture.new(limit), balanced=mixture.balanced)
    count = mixture.old(len(recent), limit)
    older = _labelled(db, layout, old_part, Stage.KEPT, 0, task) if count else []
    if from_sample is not None:
        older = [row for row in older if row[0] < first]
    return _set(db, layout, part, drawn(older, count, np.random.default_rng(mixture.seed)), recent)


def _labelled(db: Database, layout: FeatureLayout, part: Part, stage: Stage, first: int, task: str | None) -> list[Row]:
    """Insertion numbers and labels, oldest first."""
    rows = db.query(
        f"SELECT seq, label FROM sample WHERE {_FITTING} AND stage = {stage:d} AND seq >= ?"
        " AND arrival IS NOT NULL ORDER BY seq",
        (part.value, layout.digest, task, task, first),
    )
    return [(row[0], row[1]) for row in rows]


def _set(db: Database, layout: FeatureLayout, part: Part, old: list[int], recent: list[int]) -> SampleSet:
    rows = [*_stored(db, old), *_stored(db, recent)]
    return SampleSet(
        features=layout.unpack([row[2] for row in rows]),
        labels=np.array([row[1] for row in rows]),
        ids=[row[0] for row in rows],
        part=part,
        tasks=[row[3] for row in rows],
        rehearsed=len(old),
    )


def _stored(db: Database, seqs: list[int]) -> list[tuple[str, float, bytes, str | None]]:
    """Id, label, features and task of samples, in the order of insertion."""
    rows: list[tuple[str, float, bytes, str | None]] = []
    for start in range(0, len(seqs), _SEQS_A_QUERY):
        portion = seqs[start : start + _SEQS_A_QUERY]
        marks = ",".join("?" * len(portion))
        found = db.query(
            f"SELECT id, label, data, task FROM sample JOIN features USING (seq) WHERE seq IN ({marks}) ORDER BY seq",
            portion,
        )
        rows += [(row[0], row[1], row[2], row[3]) for row in found]
    return rows
