"""Outbox messages, each taken once."""

from dataclasses import dataclass
from enum import StrEnum

import structlog
from pydantic import TypeAdapter
from sqlalchemy import Connection, delete, func, insert, select

from edge_agent.wire.messages import CountsEvent, Event, EventBody, FlagEvent, SensorFaultEvent
from server_bridge.store.counts import CountTable
from server_bridge.store.database import Database, upsert
from server_bridge.store.decisions import DecisionTable, Fact
from server_bridge.store.flags import FlagTable
from server_bridge.store.marks import Mark
from server_bridge.store.sensor_faults import record_fault
from server_bridge.store.tables import EVENTS, OUTBOX_MARKS

EPOCHS_KEPT = 8
EVENTS_KEPT_PER_GATEWAY = 5_000

_BODY: TypeAdapter[EventBody] = TypeAdapter(EventBody)
_log = structlog.get_logger(__name__)


class Taken(StrEnum):
    """What became of an outbox message."""

    NEW = "new"
    DUPLICATE = "duplicate"
    DEFERRED = "deferred"


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event row."""

    id: int
    gateway: str
    received_s: float
    time_s: float
    body: EventBody


class EventTable:
    """The log of events, and per (gateway, epoch) which sequences are done.

    Args:
        database: where they are kept.
        flags: takes the flags among them.
        counts: takes the holdout counts, which replace each other and are not logged.
        decisions: told of what is missing, and of faults of sensors.

    Attributes:
        setbacks: how often the store has gone back (see :mod:`server_bridge.store.setback`). A mark that is
            from before the last time shows, at its gateway's next event, what was acknowledged and is lost.
    """

    def __init__(
        self, database: Database, flags: FlagTable, counts: CountTable, decisions: DecisionTable, setbacks: int = 0
    ) -> None:
        self._database = database
        self._flags = flags
        self._counts = counts
        self._decisions = decisions
        self.setbacks = setbacks

    def take(self, event: Event, now_s: float) -> Taken:
        """Store an event unless it is known; idempotent by (gateway, epoch, sequence), flags by their id.

        ``DEFERRED`` says that its gap set is full: it is not stored and must not be acknowledged.
        """
        with self._database.write() as connection:
            before, setbacks = self._mark(connection, event.gateway, event.epoch)
            known = before.covers(event.sequence)
            sequence = (event.sequence, event.sequence)
            after = before.advance(low=min(event.low, event.sequence), done=[*event.dropped, sequence])
            if not after.fits:
                return Taken.DUPLICATE if known else Taken.DEFERRED
            if setbacks < self.setbacks:
                self._tell_lost(event, before, now_s)
            self._set_mark(connection, event, after, now_s)
            if known:
                return Taken.DUPLICATE
            self._store(connection, event, now_s)
        return Taken.NEW

    def recent(self, *, kinds: tuple[str, ...] = (), after_id: int = 0, limit: int = 1000) -> list[StoredEvent]:
        """Events after ``after_id`` in the order of their arrival, at most ``limit``, the newest ones."""
        query = select(EVENTS).where(EVENTS.c.id > after_id)
        if kinds:
            query = query.where(EVENTS.c.kind.in_(kinds))
        with self._database.read() as connection:
            rows = connection.execute(query.order_by(EVENTS.c.id.desc()).limit(limit)).all()
        with self._database.decoding("events"):
            return [
                StoredEvent(row.id, row.gateway, row.received_s, row.time_s, _BODY.validate_json(row.body))
                for row in reversed(rows)
            ]

    def trim(self, keep: int = EVENTS_KEPT_PER_GATEWAY) -> int:
        """Forget the oldest events of gateways that have more than ``keep``; returns how many."""
        forgotten = 0
        count = func.count(EVENTS.c.id)
        with self._database.write() as connection:
            full = select(EVENTS.c.gateway).group_by(EVENTS.c.gateway).having(count > keep)
            for gateway in connection.execute(full).scalars().all():
                mine = EVENTS.c.gateway == gateway
                newest = select(EVENTS.c.id).where(mine).order_by(EVENTS.c.id.desc()).offset(keep).limit(1)
                oldest_kept = connection.execute(newest).scalar_one()
                forgotten += connection.execute(delete(EVENTS).where(mine, EVENTS.c.id <= oldest_kept)).rowcount
        return forgotten

    def mark(self, gateway: str, epoch: str) -> Mark:
        """Which sequences of an epoch are done."""
        with self._database.read() as connection:
            return self._mark(connection, gateway, epoch)[0]

    def _tell_lost(self, event: Event, before: Mark, now_s: float) -> None:
        lost = before.missing_below(min(event.low, event.sequence))
        if not lost:
            return
        detail = (
            f"{lost} events of gateway {event.gateway} acknowledged before the store went back are lost (those that its"
            " outbox has shed meanwhile are counted too); a flag that stands is sent again"
        )
        facts: dict[str, Fact] = {"gateway": event.gateway, "lost": lost, "below": min(event.low, event.sequence)}
        _log.error("events-lost", **facts)
        self._decisions.record("store", "events-lost", detail, now_s, facts=facts)

    def _store(self, connection: Connection, event: Event, now_s: float) -> None:
        body = event.body
        if isinstance(body, CountsEvent):
            self._counts.replace(event, body)
            return
        if isinstance(body, FlagEvent) and not self._flags.record(event.gateway, body, now_s):
            return  # said again, perhaps for a bridge that lost it
        if isinstance(body, SensorFaultEvent):
            if self._holds(connection, event):
                return  # told twice, as after a power cut
            record_fault(self._decisions, event.gateway, body, now_s)
        row = {
            "gateway": event.gateway,
            "epoch": event.epoch,
            "sequence": event.sequence,
            "received_s": now_s,
            "time_s": event.time_s,
            "kind": body.kind,
            "body": body.model_dump_json(by_alias=True),
        }
        connection.execute(insert(EVENTS).values(**row))

    def _holds(self, connection: Connection, event: Event) -> bool:
        """Whether the same was said before, under another sequence."""
        mine = (EVENTS.c.gateway == event.gateway, EVENTS.c.kind == event.body.kind)
        same = EVENTS.c.body == event.body.model_dump_json(by_alias=True)
        return connection.execute(select(EVENTS.c.id).where(*mine, same).limit(1)).first() is not None

    def _mark(self, connection: Connection, gateway: str, epoch: str) -> tuple[Mark, int]:
        """Which sequences are done, and how often the store had gone back when that was written."""
        query = select(OUTBOX_MARKS.c.low, OUTBOX_MARKS.c.above, OUTBOX_MARKS.c.setbacks)
        row = connection.execute(query.where(OUTBOX_MARKS.c.gateway == gateway, OUTBOX_MARKS.c.epoch == epoch)).first()
        if row is None:
            return Mark(), 0
        with self._database.decoding("outbox_marks"):
            return Mark.from_store(row.low, row.above), row.setbacks

    def _set_mark(self, connection: Connection, event: Event, mark: Mark, now_s: float) -> None:
        row = {
            "gateway": event.gateway,
            "epoch": event.epoch,
            "low": mark.low,
            "above": mark.above_json(),
            "seen_s": now_s,
            "setbacks": self.setbacks,
        }
        upsert(connection, OUTBOX_MARKS, row)
        mine = OUTBOX_MARKS.c.gateway == event.gateway
        recency = (OUTBOX_MARKS.c.seen_s.desc(), OUTBOX_MARKS.c.epoch)
        old = select(OUTBOX_MARKS.c.epoch).where(mine).order_by(*recency).offset(EPOCHS_KEPT).limit(1000)
        for epoch in connection.execute(old).scalars().all():
            connection.execute(delete(OUTBOX_MARKS).where(mine, OUTBOX_MARKS.c.epoch == epoch))
