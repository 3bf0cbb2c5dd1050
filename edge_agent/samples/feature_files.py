"""Which file of features is written, and which have lost their last sample."""

from collections.abc import Callable, Sequence

from edge_agent.link.database import Database
from edge_agent.samples.segments import Segments
from edge_agent.samples.tables import take_numbers

SEGMENT = "segment"


class FeatureFiles:
    """New features go to one file after the other; usable inside the caller's transactions only.

    A file may go once the transaction is committed in which its last sample left, not before.

    Args:
        used: the files of the recent samples.
    """

    def __init__(self, db: Database, segments: Segments, used: Callable[[], set[int]]) -> None:
        self._db = db
        self._segments = segments
        self._used = used
        self._writing: int | None = None
        self._doomed: list[tuple[int, int]] = []

    def begin_anew(self) -> None:
        """The next features go to another file: what was written of this one may have been rolled back."""
        self._writing = None

    def append(self, rows: Sequence[memoryview]) -> tuple[int, int]:
        """Write features, one portion after the other; returns the number of the file, and where in it they begin."""
        if self._writing is None or self._segments.is_full(self._writing):
            full, self._writing = self._writing, take_numbers(self._db, SEGMENT, 1)
            self._retire(full)
        return self._writing, self._segments.append(self._writing, rows)

    def sync(self) -> None:
        """Bring what was written to the disk."""
        if self._writing is not None:
            self._segments.sync(self._writing)

    def left(self, segment: int) -> None:
        """Samples have left a file."""
        if segment != self._writing:
            self._retire(segment)

    def remove(self) -> None:
        """Remove the files whose last sample left in a transaction that was committed."""
        begun = self._db.transactions
        ready = {number for number, transaction in self._doomed if transaction < begun}
        if ready:
            self._doomed = [entry for entry in self._doomed if entry[0] not in ready]
            self._segments.remove(ready - self._used())

    def _retire(self, segment: int | None) -> None:
        """A file that is written no more; it may have lost its last sample already."""
        if segment is not None and segment not in self._used():
            self._doomed.append((segment, self._db.transactions))
