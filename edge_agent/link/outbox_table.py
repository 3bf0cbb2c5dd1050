"""The outbox's rows: what is held, what was shed, and the counters, all within transactions."""

import secrets
from collections.abc import Iterable

from edge_agent.link.database import Database

OLD_AT_A_TIME = 100

TABLES = (
    "CREATE TABLE outbox (sequence INTEGER PRIMARY KEY, priority INTEGER NOT NULL, put_s REAL NOT NULL,"
    " put_running_s REAL NOT NULL, body BLOB NOT NULL)",
    "CREATE INDEX outbox_order ON outbox (priority, sequence)",
    "CREATE TABLE outbox_shed (first INTEGER PRIMARY KEY, last INTEGER NOT NULL)",
    "CREATE TABLE outbox_state (one INTEGER PRIMARY KEY CHECK (one = 1), epoch TEXT NOT NULL,"
    " next_sequence INTEGER NOT NULL, held_bytes INTEGER NOT NULL, shed INTEGER NOT NULL, running_s REAL NOT NULL)",
)


class OutboxTable:
    """Reads need no transaction; whatever changes something must be called inside one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.define("outbox", TABLES)
        with database.transaction():
            database.execute("INSERT OR IGNORE INTO outbox_state VALUES (1, ?, 1, 0, 0, 0.0)", (secrets.token_hex(16),))
        rows = database.query("SELECT epoch FROM outbox_state")
        with database.understood():
            self.epoch = str(rows[0][0])

    @property
    def held_bytes(self) -> int:
        """Bytes of all bodies."""
        return self._number("held_bytes")

    @property
    def shed(self) -> int:
        """How many messages the caps have dropped since the database was made."""
        return self._number("shed")

    @property
    def running_s(self) -> float:
        """Seconds this database's outbox had been in use when last told."""
        rows = self._database.query("SELECT running_s FROM outbox_state")
        with self._database.understood():
            return float(rows[0][0])

    @property
    def depth(self) -> int:
        """How many messages are held."""
        return int(self._database.query("SELECT count(*) FROM outbox")[0][0])

    @property
    def low(self) -> int:
        """The lowest sequence held, else the next one to be given."""
        lowest = self._database.query("SELECT min(sequence) FROM outbox")[0][0]
        return self._number("next_sequence") if lowest is None else int(lowest)

    def append(self, priority: int, put_s: float, running_s: float, body: bytes) -> int:
        """Hold one more; returns its sequence."""
        sequence = self._number("next_sequence")
        self._database.execute(
            "INSERT INTO outbox VALUES (?, ?, ?, ?, ?)", (sequence, priority, put_s, running_s, body)
        )
        self._database.execute(
            "UPDATE outbox_state SET next_sequence = next_sequence + 1, held_bytes = held_bytes + ?", (len(body),)
        )
        return sequence

    def set_running(self, running_s: float) -> None:
        """Keep the running time over restarts."""
        self._database.execute("UPDATE outbox_state SET running_s = ?", (running_s,))

    def first(self, priority: int, limit: int) -> list[tuple[int, float, bytes]]:
        """(sequence, time, body) of the oldest of one priority."""
        rows = self._database.query(
            "SELECT sequence, put_s, body FROM outbox WHERE priority = ? ORDER BY sequence LIMIT ?", (priority, limit)
        )
        with self._database.understood():
            return [(int(sequence), float(put_s), bytes(body)) for sequence, put_s, body in rows]

    def oldest_since_s(self) -> float | None:
        """The running time at which the oldest was put."""
        rows = self._database.query("SELECT put_running_s FROM outbox ORDER BY sequence LIMIT 1")
        return float(rows[0][0]) if rows else None

    def put_before(self, running_s: float) -> list[int]:
        """The lowest sequences, at most ``OLD_AT_A_TIME``, if put before that running time."""
        rows = self._database.query(
            "SELECT sequence FROM (SELECT sequence, put_running_s FROM outbox ORDER BY sequence LIMIT ?)"
            " WHERE put_running_s < ?",
            (OLD_AT_A_TIME, running_s),
        )
        return [int(row[0]) for row in rows]

    def least_wanted(self) -> int | None:
        """The oldest of the lowest priority."""
        rows = self._database.query(
            "SELECT min(sequence) FROM outbox WHERE priority = (SELECT max(priority) FROM outbox)"
        )
        return None if rows[0][0] is None else int(rows[0][0])

    def remove(self, first: int, last: int) -> int:
        """Forget a range, both ends included; returns how many were held."""
        size = self._database.query(
            "SELECT coalesce(sum(length(body)), 0) FROM outbox WHERE sequence BETWEEN ? AND ?", (first, last)
        )[0][0]
        removed = self._database.execute("DELETE FROM outbox WHERE sequence BETWEEN ? AND ?", (first, last))
        self._database.execute("UPDATE outbox_state SET held_bytes = held_bytes - ?", (int(size),))
        return removed

    def drop(self, sequences: Iterable[int]) -> int:
        """Shed messages: count them and keep their ranges for the bridge; returns how many."""
        dropped = 0
        for sequence in sequences:
            if self.remove(sequence, sequence):
                self._add_shed(sequence)
                dropped += 1
        self._database.execute("UPDATE outbox_state SET shed = shed + ?", (dropped,))
        return dropped

    def shed_ranges(self, limit: int) -> list[tuple[int, int]]:
        """The lowest shed ranges at or above the lowest sequence held; below, ``low`` tells all."""
        rows = self._database.query(
            "SELECT first, last FROM outbox_shed WHERE last >= ? ORDER BY first LIMIT ?", (self.low, limit)
        )
        return [(int(first), int(last)) for first, last in rows]

    def forget_shed_below_low(self) -> None:
        """Drop ranges that ``low`` already covers."""
        self._database.execute("DELETE FROM outbox_shed WHERE last < ?", (self.low,))

    def _add_shed(self, sequence: int) -> None:
        first, last = sequence, sequence
        touching = self._database.query(
            "SELECT first, last FROM outbox_shed WHERE last = ? OR first = ?", (sequence - 1, sequence + 1)
        )
        for known_first, known_last in touching:
            self._database.execute("DELETE FROM outbox_shed WHERE first = ?", (known_first,))
            first, last = min(first, int(known_first)), max(last, int(known_last))
        self._database.execute("INSERT INTO outbox_shed VALUES (?, ?)", (first, last))

    def _number(self, column: str) -> int:
        rows = self._database.query(f"SELECT {column} FROM outbox_state")
        with self._database.understood():
            return int(rows[0][0])
