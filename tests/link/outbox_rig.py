"""An outbox on a real database, with clocks moved by hand."""

from pathlib import Path

from edge_agent.link.database import Database, open_database
from edge_agent.link.outbox import Outbox, Priority
from edge_agent.wire.codec import decode
from edge_agent.wire.messages import EVENT_CAP_BYTES, ErrorEvent, Event


class Hand:
    """A clock moved by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Rig:
    """An outbox on a database that can be closed and opened again."""

    def __init__(self, path: Path, *, max_bytes: int = 1_000_000, max_age_s: float = 86_400) -> None:
        self.path = path
        self.monotonic = Hand()
        self.wall = Hand()
        self._caps = (max_bytes, max_age_s)
        self.open()

    def open(self) -> None:
        self.database: Database = open_database(self.path, synchronous="NORMAL")
        self.outbox = Outbox(
            self.database,
            "gw1",
            max_bytes=self._caps[0],
            max_age_s=self._caps[1],
            clock=self.wall,
            monotonic=self.monotonic,
        )

    def put(self, number: int, priority: Priority = Priority.TELEMETRY, padding: int = 0) -> int:
        return self.outbox.put(ErrorEvent(place=str(number), problem="x" * padding), priority)

    def due(self, limit: int = 100) -> list[Event]:
        return [
            decode(Event, data, cap_bytes=EVENT_CAP_BYTES) for _, data in self.outbox.due(self.monotonic.now_s, limit)
        ]
