"""Seconds that the store has been in use: a clock that nobody can set."""

import time
from collections.abc import Callable

from edge_agent.link.database import Database
from edge_agent.samples.chunk_table import read_chunks


class RunningTime:
    """Goes on from the newest time in the store, over restarts, and never jumps.

    The wall clock of a gateway may be a year off until it hears the time: by it, every sample that waits for its
    label would be given up at once, or for ever.

    Args:
        db: the sample store's; its tables exist.
        monotonic_s: seconds, never going back.
    """

    def __init__(self, db: Database, *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        rows = db.query(
            "SELECT added_s FROM (SELECT added_s FROM sample ORDER BY seq DESC LIMIT 1) UNION ALL"
            " SELECT added_s FROM (SELECT added_s FROM early_label ORDER BY place DESC LIMIT 1)"
        )
        newest = [chunk.added_s[-1] for chunk in read_chunks(db)[0][-1:]]
        self._began_s = max([0.0, *(float(row[0]) for row in rows), *map(float, newest)]) - monotonic_s()
        self._monotonic_s = monotonic_s

    def now_s(self) -> float:
        """Seconds, to be compared with others of this store only."""
        return self._began_s + self._monotonic_s()
