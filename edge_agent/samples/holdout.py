"""How often the served weights were right on holdout samples: totals by span of sample time."""

import math
from collections.abc import Iterable, Sequence
from itertools import groupby

from edge_agent.drift.losses import HUBER_DELTA, Kind, LossName
from edge_agent.drift.rises import clip_losses
from edge_agent.link.database import Database
from edge_agent.samples.record import LabelledRow, Part
from edge_agent.samples.scoring import row_losses, row_right
from edge_agent.wire.messages.event import CountsBucket, CountsEvent

COMPONENT = "holdout"
BUCKETS_KEPT = 5_000
BUCKETS_AN_EVENT = 200

TABLES = (
    """CREATE TABLE holdout (
        place INTEGER PRIMARY KEY,
        bundle TEXT NOT NULL, weights TEXT NOT NULL, version INTEGER NOT NULL, cohort TEXT NOT NULL,
        bucket_s REAL NOT NULL, bucket INTEGER NOT NULL,
        labelled INTEGER NOT NULL, right INTEGER NOT NULL, loss_sum REAL NOT NULL,
        reported INTEGER NOT NULL DEFAULT 0,
        UNIQUE (bundle, weights, version, cohort, bucket_s, bucket)
    )""",
    "CREATE INDEX holdout_dirty ON holdout (place) WHERE labelled <> reported",
    # What weights that are no release's lie on.
    """CREATE TABLE overlay (
        place INTEGER PRIMARY KEY, weights TEXT NOT NULL UNIQUE, release TEXT NOT NULL, batches INTEGER NOT NULL
    )""",
)

_Key = tuple[str, str, int, str, int]


class HoldoutCounts:
    """Running totals of labelled and right holdout samples, for each weights version and time bucket.

    They survive a restart. Added in the transaction that joined the labels (the same database),
    every label counts exactly once.

    Args:
        db: the sample store's.
        kind, loss, delta: the manifest's; delta is Huber's.
        bucket_s: span of sample time in one bucket; bucket = floor(time_s / bucket_s).
    """

    def __init__(
        self, db: Database, *, kind: Kind, loss: LossName, bucket_s: float, delta: float = HUBER_DELTA
    ) -> None:
        db.define(COMPONENT, TABLES)
        self._db = db
        self._kind: Kind = kind
        self._loss: LossName = loss
        self._delta = delta
        self._bucket_s = bucket_s

    def overlaid(self, weights: str, release: str, batches: int) -> None:
        """These weights are an overlay on a release: what they get right counts as theirs.

        Raises:
            StorageError: it is not known then; say it before the rows that they served.
        """
        said = "INSERT OR IGNORE INTO overlay (weights, release, batches) VALUES (?, ?, ?)"
        forget = "DELETE FROM overlay WHERE place <= (SELECT max(place) FROM overlay) - ?"
        with self._db.transaction():
            if self._db.execute(said, (weights, release, batches)) > 0:
                self._db.execute(forget, (BUCKETS_KEPT,))

    def add(self, rows: Iterable[LabelledRow]) -> None:
        """Count newly labelled samples; those that are no holdout are passed over.

        A loss that is not finite counts as ``drift.rises.LOSS_CAP``.

        Raises:
            StorageError: nothing was counted.
        """
        buckets: dict[_Key, list[LabelledRow]] = {}
        holdout = Part.HOLDOUT
        for row in [row for row in rows if row.part is holdout]:
            buckets.setdefault(self._key(row), []).append(row)
        if not buckets:
            return
        with self._db.transaction():
            for key, members in buckets.items():
                self._count(key, members)
            self._db.execute("DELETE FROM holdout WHERE place <= (SELECT max(place) FROM holdout) - ?", (BUCKETS_KEPT,))

    def dirty(self) -> list[CountsEvent]:
        """Events with the totals of every bucket that changed since it was last marked as sent."""
        rows = self._db.query(
            "SELECT bundle, weights, version, cohort, bucket_s, bucket, labelled, right, loss_sum FROM holdout"
            " WHERE labelled <> reported ORDER BY bundle, weights, version, cohort, bucket_s, bucket"
        )
        overlays = {row[0]: (row[1], row[2]) for row in self._db.query("SELECT weights, release, batches FROM overlay")}
        events = []
        for (bundle, weights, version, cohort, bucket_s), members in groupby(rows, key=lambda row: row[:5]):
            release, batches = overlays.get(weights, (None, 0))
            buckets = [CountsBucket(bucket=row[5], labelled=row[6], right=row[7], loss_sum=row[8]) for row in members]
            events += [
                CountsEvent(
                    bundle=bundle,
                    weights=weights,
                    weights_version=version,
                    cohort=cohort,
                    bucket_s=bucket_s,
                    buckets=buckets[start : start + BUCKETS_AN_EVENT],
                    release=release,
                    overlay_batches=batches,
                )
                for start in range(0, len(buckets), BUCKETS_AN_EVENT)
            ]
        return events

    def mark_sent(self, events: Sequence[CountsEvent]) -> None:
        """After the outbox holds these events: only what changes from now on is dirty."""
        with self._db.transaction():
            self._db.execute_many(
                "UPDATE holdout SET reported = ? WHERE bundle = ? AND weights = ? AND version = ? AND cohort = ?"
                " AND bucket_s = ? AND bucket = ?",
                [
                    (
                        bucket.labelled,
                        event.bundle,
                        event.weights,
                        event.weights_version,
                        event.cohort,
                        event.bucket_s,
                        bucket.bucket,
                    )
                    for event in events
                    for bucket in event.buckets
                ],
            )

    def _key(self, row: LabelledRow) -> _Key:
        return row.bundle, row.weights, row.version, row.cohort, math.floor(row.time_s / self._bucket_s)

    def _count(self, key: _Key, rows: list[LabelledRow]) -> None:
        bundle, weights, version, cohort, bucket = key
        right = int(row_right(self._kind, rows).sum())
        loss_sum = float(clip_losses(row_losses(self._loss, rows, delta=self._delta), None).sum())
        self._db.execute(
            "INSERT INTO holdout (bundle, weights, version, cohort, bucket_s, bucket, labelled, right, loss_sum)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (bundle, weights, version, cohort, bucket_s, bucket) DO UPDATE SET"
            " labelled = labelled + excluded.labelled, right = right + excluded.right,"
            " loss_sum = loss_sum + excluded.loss_sum",
            (bundle, weights, version, cohort, self._bucket_s, bucket, len(rows), right, loss_sum),
        )
