"""Drift flags: recorded once each by id; open until a round consumes them or they are set aside."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, delete, select, update

from edge_agent.wire.messages import FlagEvent
from server_bridge.store.database import Database, upsert
from server_bridge.store.tables import FLAGS

OPEN = "open"
CONSUMED = "consumed"
IGNORED = "ignored"
FLAGS_KEPT_PER_GATEWAY = 1_000


@dataclass(frozen=True, slots=True)
class StoredFlag:
    """A flag and what became of it: ``open``, ``consumed`` by a round, or ``ignored``."""

    gateway: str
    received_s: float
    status: str
    adaptation: str | None
    round: int | None
    event: FlagEvent


class FlagTable:
    """Flags by their id.

    Args:
        database: where they are kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def record(self, gateway: str, flag: FlagEvent, now_s: float) -> bool:
        """Record a flag as open; whether it was new. The same id is never recorded twice."""
        row = {
            "flag_id": flag.flag_id,
            "gateway": gateway,
            "received_s": now_s,
            "bundle": flag.bundle,
            "weights": flag.weights,
            "weights_version": flag.weights_version,
            "cohort": flag.cohort,
            "trainable_samples": flag.trainable_samples,
            "body": flag.model_dump_json(by_alias=True),
            "status": OPEN,
        }
        with self._database.write() as connection:
            return upsert(connection, FLAGS, row, replace=())

    def open(self) -> list[StoredFlag]:
        """Open flags in the order of their receipt."""
        with self._database.read() as connection:
            query = select(FLAGS).where(FLAGS.c.status == OPEN).order_by(FLAGS.c.received_s, FLAGS.c.flag_id)
            return self._read(connection.execute(query).all())

    def all(self) -> list[StoredFlag]:
        """Every flag in the order of their receipt."""
        with self._database.read() as connection:
            query = select(FLAGS).order_by(FLAGS.c.received_s, FLAGS.c.flag_id)
            return self._read(connection.execute(query).all())

    def ignore(self, flag_ids: Iterable[str]) -> int:
        """Set open flags aside; returns how many were."""
        with self._database.write() as connection:
            chosen = FLAGS.c.flag_id.in_(list(flag_ids))
            return connection.execute(
                update(FLAGS).where(chosen, FLAGS.c.status == OPEN).values(status=IGNORED)
            ).rowcount

    def ignore_all_of(self, gateway: str) -> int:
        """Set every open flag of a gateway aside; returns how many were open."""
        with self._database.write() as connection:
            mine = (FLAGS.c.gateway == gateway, FLAGS.c.status == OPEN)
            return connection.execute(update(FLAGS).where(*mine).values(status=IGNORED)).rowcount

    def consume(self, flag_ids: Iterable[str], adaptation: str, round_number: int) -> int:
        """Mark open flags as answered by a round; call it in the transaction that commits the round."""
        values = {"status": CONSUMED, "adaptation": adaptation, "round": round_number}
        with self._database.write() as connection:
            chosen = FLAGS.c.flag_id.in_(list(flag_ids))
            return connection.execute(update(FLAGS).where(chosen, FLAGS.c.status == OPEN).values(**values)).rowcount

    def reopen(self, adaptation: str) -> int:
        """What rounds of an adaptation had answered is open again; returns how many flags."""
        values = {"status": OPEN, "adaptation": None, "round": None}
        with self._database.write() as connection:
            chosen = (FLAGS.c.adaptation == adaptation, FLAGS.c.status == CONSUMED)
            return connection.execute(update(FLAGS).where(*chosen).values(**values)).rowcount

    def trim(self, keep: int = FLAGS_KEPT_PER_GATEWAY) -> int:
        """Forget all but the newest ``keep`` flags of each gateway; returns how many."""
        forgotten = 0
        with self._database.write() as connection:
            for gateway in connection.execute(select(FLAGS.c.gateway).distinct()).scalars().all():
                mine = select(FLAGS.c.flag_id).where(FLAGS.c.gateway == gateway)
                old = mine.order_by(FLAGS.c.received_s.desc(), FLAGS.c.flag_id).offset(keep).limit(1000)
                excess = list(connection.execute(old).scalars().all())
                forgotten += connection.execute(delete(FLAGS).where(FLAGS.c.flag_id.in_(excess))).rowcount
        return forgotten

    def _read(self, rows: Sequence[Row[Any]]) -> list[StoredFlag]:
        with self._database.decoding("flags"):
            return [_flag(row) for row in rows]


def _flag(row: Row[Any]) -> StoredFlag:
    event = FlagEvent.model_validate_json(row.body)
    return StoredFlag(row.gateway, row.received_s, row.status, row.adaptation, row.round, event)
