"""Store and forward: events are held until the bridge says that it has committed them."""

import random
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from functools import cache

import structlog
from pydantic import TypeAdapter, ValidationError

from edge_agent.errors import DataError
from edge_agent.link.database import Database
from edge_agent.link.outbox_table import OutboxTable
from edge_agent.wire.codec import encode
from edge_agent.wire.messages import EVENT_CAP_BYTES, Event, EventBody

# The envelope without the body: names and numbers, and at most 64 ranges of two 16-digit numbers.
ENVELOPE_BYTES = 4 * 1024
SHED_RANGES_TOLD = 64
RESEND_FIRST_S = 5.0
RESEND_CAP_S = 300.0
RUNNING_TIME_KEPT_EVERY_S = 600.0
SHED_TOLD_EVERY_S = 60.0

_log = structlog.get_logger(__name__)


class Priority(IntEnum):
    """What goes first, and what is shed last."""

    FLAG = 0
    LIFECYCLE = 1
    TELEMETRY = 2


@dataclass(slots=True)
class _Flight:
    priority: Priority
    attempts: int
    due_s: float


class Outbox:
    """Events on their way to the bridge. Usable from any thread.

    Args:
        database: the caller's own transactions and the outbox's must be in the same one.
        gateway: whose events they are.
        max_bytes: beyond, the oldest of the lowest priority are shed.
        max_age_s: held longer than this in running time (the wall clock may jump), any event is shed.
        clock: seconds since 1970, told in the event.
        monotonic: seconds, never going back.
    """

    def __init__(
        self,
        database: Database,
        gateway: str,
        *,
        max_bytes: int,
        max_age_s: float,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._gateway = gateway
        self._max_bytes = max_bytes
        self._max_age_s = max_age_s
        self._clock = clock
        self._monotonic = monotonic
        self._rng = random.Random()
        self._table = OutboxTable(database)
        self._began_s = monotonic() - self._table.running_s
        self._kept_s = self._table.running_s
        self._shed_told_s = -SHED_TOLD_EVERY_S
        self._flights: dict[int, _Flight] = {}
        self._lock = threading.RLock()
        self.added = threading.Event()

    @property
    def epoch(self) -> str:
        """Random per database: sequences of another epoch are other messages."""
        return self._table.epoch

    @property
    def depth(self) -> int:
        """How many events are held."""
        return self._table.depth

    @property
    def held_bytes(self) -> int:
        """Bytes of the events held."""
        return self._table.held_bytes

    @property
    def oldest_age_s(self) -> float:
        """How long the oldest has been held, in running time."""
        since_s = self._table.oldest_since_s()
        return 0.0 if since_s is None else self._running_s() - since_s

    @property
    def shed(self) -> int:
        """How many events the caps have dropped, ever."""
        return self._table.shed

    def put(self, body: EventBody, priority: Priority) -> int:
        """Hold an event; joins the caller's transaction. Returns its sequence.

        Raises:
            StorageError: the database refused.
            DataError: the event is too large for the wire.
        """
        data = encode(body)
        if len(data) > EVENT_CAP_BYTES - ENVELOPE_BYTES:
            raise DataError(f"an event {body.kind!r} of {len(data)} bytes does not fit the wire")
        with self._database.transaction():
            sequence = self._table.append(priority, self._clock(), self._running_s(), data)
            self._keep_running_time()
            self._shed_over_caps()
        self.added.set()
        return sequence

    def due(self, now_s: float, limit: int) -> list[tuple[int, bytes]]:
        """Events to send now, most urgent first; they count as sent, and are due again after a back-off.

        Args:
            now_s: monotonic seconds.
            limit: the most events of each priority that may be unacknowledged at a time.

        Returns: (sequence, encoded event) pairs; the envelope is as of now.
        """
        with self._database.transaction(), self._lock:
            if self._running_s() - self._kept_s > RUNNING_TIME_KEPT_EVERY_S:
                self._keep_running_time()
            self._shed_over_caps()
            rows = [row for priority in Priority for row in self._due_of(priority, now_s, limit)]
            encoded = [(sequence, self._encode(sequence, put_s, body)) for sequence, put_s, body in rows]
            unreadable = [sequence for sequence, data in encoded if data is None]
            if unreadable:
                _log.error("outbox-events-unreadable", count=self._drop(unreadable))
        return [(sequence, data) for sequence, data in encoded if data is not None]

    def not_sent(self, sequences: Iterable[int]) -> None:
        """Take back what :meth:`due` gave: it could not be handed to the session."""
        with self._lock:
            for sequence in sequences:
                self._flights.pop(sequence, None)

    def acknowledge(self, epoch: str, ranges: Iterable[tuple[int, int]]) -> int:
        """The bridge has committed these (both ends included); returns how many were held.

        Raises:
            StorageError: the database refused; the bridge will be asked again.
        """
        if epoch != self.epoch:
            return 0
        ranges = list(ranges)
        with self._database.transaction():
            removed = sum(self._table.remove(first, last) for first, last in ranges)
            self._table.forget_shed_below_low()
        with self._lock:
            for sequence in list(self._flights):
                if any(first <= sequence <= last for first, last in ranges):
                    del self._flights[sequence]
        if removed:
            self.added.set()
        return removed

    def resend_all(self) -> None:
        """Everything unacknowledged is due now: after an own reconnect, or a new start of the bridge."""
        with self._lock:
            self._flights.clear()
        self.added.set()

    def _due_of(self, priority: Priority, now_s: float, limit: int) -> list[tuple[int, float, bytes]]:
        waiting = sum(flight.priority == priority and flight.due_s > now_s for flight in self._flights.values())
        rows = self._table.first(priority, limit)
        chosen = [row for row in rows if row[0] not in self._flights or self._flights[row[0]].due_s <= now_s]
        chosen = chosen[: max(0, limit - waiting)]
        for sequence, _, _ in chosen:
            flight = self._flights.setdefault(sequence, _Flight(priority, 0, now_s))
            flight.attempts += 1
            longest_s = min(RESEND_CAP_S, RESEND_FIRST_S * 2.0 ** min(flight.attempts - 1, 30))
            flight.due_s = now_s + self._rng.uniform(longest_s / 2, longest_s)
        return chosen

    def _encode(self, sequence: int, put_s: float, body: bytes) -> bytes | None:
        try:
            content = _bodies().validate_json(body)
        except ValidationError:
            return None
        event = Event(
            gateway=self._gateway,
            epoch=self.epoch,
            sequence=sequence,
            low=self._table.low,
            dropped=self._table.shed_ranges(SHED_RANGES_TOLD),
            time_s=put_s,
            body=content,
        )
        return encode(event)

    def _running_s(self) -> float:
        """Seconds the outbox has been in use, over restarts: a clock that nobody can set."""
        return self._monotonic() - self._began_s

    def _keep_running_time(self) -> None:
        self._kept_s = self._running_s()
        self._table.set_running(self._kept_s)

    def _shed_over_caps(self) -> None:
        shed = self._drop(self._table.put_before(self._running_s() - self._max_age_s))
        while self._table.held_bytes > self._max_bytes and (victim := self._table.least_wanted()) is not None:
            shed += self._drop([victim])
        if shed:
            self._table.forget_shed_below_low()
            self._tell_shed()

    def _tell_shed(self) -> None:
        """Say so once a minute at most: a full outbox must not fill the log."""
        if self._monotonic() - self._shed_told_s >= SHED_TOLD_EVERY_S:
            self._shed_told_s = self._monotonic()
            _log.warning("outbox-events-shed", total=self._table.shed, held_bytes=self._table.held_bytes)

    def _drop(self, sequences: list[int]) -> int:
        if not sequences:
            return 0
        with self._lock:
            for sequence in sequences:
                self._flights.pop(sequence, None)
        return self._table.drop(sequences)


@cache
def _bodies() -> TypeAdapter[EventBody]:
    """Compiled when first needed: not while the agent starts."""
    return TypeAdapter(EventBody)
