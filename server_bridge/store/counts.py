"""Right and labelled holdout samples per gateway, weights and span of sample time."""

from dataclasses import dataclass, replace

from sqlalchemy import ColumnElement, Float, cast, delete, func, select

from edge_agent.wire.messages import CountsEvent, Event
from server_bridge.store.database import Database, upsert
from server_bridge.store.tables import COUNTS

BUCKETS_KEPT_PER_GATEWAY = 20_000
LATEST_BUCKETS = 3  # what is told of weights is how they did at the end of their time, or do now


@dataclass(frozen=True, slots=True)
class StoredCounts:
    """Totals of one bucket: spans of ``bucket_s`` seconds of sample time, counted from 0."""

    gateway: str
    weights: str
    weights_version: int
    cohort: str
    bucket_s: float
    bucket: int
    labelled: int
    right: int
    loss_sum: float


@dataclass(frozen=True, slots=True)
class Accuracies:
    """How a gateway does on its holdout samples, in the last spans of each of its weights.

    Attributes:
        before: share that it got right under the weights before; ``None`` if nothing was counted under others.
        now: the same under these weights; of a regression, which is never right, 0.
        labelled: how many samples ``now`` is of.
        loss_before, loss_now: mean losses of the same samples.
        labelled_before: how many samples ``before`` is of.
    """

    before: float | None
    now: float
    labelled: int
    loss_before: float | None = None
    loss_now: float = 0.0
    labelled_before: int = 0


class CountTable:
    """Buckets; a later event about the same one replaces an earlier one.

    Args:
        database: where they are kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def replace(self, event: Event, counts: CountsEvent) -> None:
        """Take an event's buckets, unless a later event of the same epoch has spoken about one."""
        for bucket in counts.buckets:
            row = {
                "gateway": event.gateway,
                "weights": counts.weights,
                "bucket_s": counts.bucket_s,
                "bucket": bucket.bucket,
                "weights_version": counts.weights_version,
                "cohort": counts.cohort,
                "labelled": bucket.labelled,
                "right": bucket.right,
                "loss_sum": bucket.loss_sum,
                "epoch": event.epoch,
                "sequence": event.sequence,
            }
            with self._database.write() as connection:
                keys = [COUNTS.c[key.name] == row[key.name] for key in COUNTS.primary_key]
                known = connection.execute(select(COUNTS.c.epoch, COUNTS.c.sequence).where(*keys)).first()
                if known is None or known.epoch != event.epoch or known.sequence < event.sequence:
                    upsert(connection, COUNTS, row)

    def accuracies(self) -> dict[tuple[str, str], Accuracies]:
        """By gateway and weights, each gateway's in the order of their last spans."""
        key = (COUNTS.c.gateway, COUNTS.c.weights)
        last = select(*key, func.max(COUNTS.c.bucket).label("last")).group_by(*key).subquery()
        query = (
            select(
                *key,
                func.max(COUNTS.c.weights_version).label("version"),
                func.max(COUNTS.c.bucket).label("last"),
                _total(COUNTS.c.labelled).label("labelled"),
                _total(COUNTS.c.right).label("right"),
                func.sum(COUNTS.c.loss_sum).label("loss_sum"),
            )
            .join(last, (last.c.gateway == COUNTS.c.gateway) & (last.c.weights == COUNTS.c.weights))
            .where(COUNTS.c.bucket > last.c.last - LATEST_BUCKETS, COUNTS.c.labelled > 0)
            .group_by(*key)
        )
        with self._database.read() as connection:
            rows = sorted(connection.execute(query).all(), key=lambda row: (row.gateway, row.last, row.version))
        found: dict[tuple[str, str], Accuracies] = {}
        before: dict[str, Accuracies] = {}
        for row in rows:
            labelled = int(row.labelled)
            share, loss = int(row._mapping["right"]) / labelled, float(row.loss_sum) / labelled
            told = Accuracies(None, share, labelled, None, loss)
            if (under := before.get(row.gateway)) is not None:
                told = replace(told, before=under.now, loss_before=under.loss_now, labelled_before=under.labelled)
            found[row.gateway, row.weights] = before[row.gateway] = told
        return found

    def trim(self, keep: int = BUCKETS_KEPT_PER_GATEWAY) -> int:
        """Forget the oldest buckets of gateways that have more than ``keep``; returns how many."""
        forgotten = 0
        with self._database.write() as connection:
            full = select(COUNTS.c.gateway).group_by(COUNTS.c.gateway).having(func.count() > keep)
            for gateway in connection.execute(full).scalars().all():
                mine = COUNTS.c.gateway == gateway
                newest = select(COUNTS.c.bucket).where(mine).order_by(COUNTS.c.bucket.desc()).offset(keep).limit(1)
                border = connection.execute(newest).scalar_one()
                forgotten += connection.execute(delete(COUNTS).where(mine, COUNTS.c.bucket <= border)).rowcount
        return forgotten

    def all(self, gateway: str | None = None) -> list[StoredCounts]:
        """Every bucket, by gateway and bucket."""
        query = select(COUNTS).order_by(COUNTS.c.gateway, COUNTS.c.bucket, COUNTS.c.weights_version)
        if gateway is not None:
            query = query.where(COUNTS.c.gateway == gateway)
        with self._database.read() as connection:
            rows = connection.execute(query).all()
        return [
            StoredCounts(
                row.gateway,
                row.weights,
                row.weights_version,
                row.cohort,
                row.bucket_s,
                row.bucket,
                row.labelled,
                row._mapping["right"],
                row.loss_sum,
            )
            for row in rows
        ]


def _total(column: ColumnElement[int]) -> ColumnElement[float]:
    """A sum that no gateway's claims overflow; exact up to 2^53."""
    return func.sum(cast(column, Float))
