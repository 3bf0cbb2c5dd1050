"""Reads the databases through now and then: damage that nobody happens to read is found while it is young."""

import time
from collections.abc import Sequence

import structlog

from edge_agent.errors import StorageError
from edge_agent.link.database import Database, find_damage
from edge_agent.runtime.part import ThreadPart

LEAST_INTERVAL_S = 5.0
SHARE_OF_TIME = 1 / 300
"""What reading may take of one processor and of the disk; a database of 82 MB is then read once a minute."""

_log = structlog.get_logger(__name__)


class SoundnessCheck(ThreadPart):
    """Marks a database as damaged when its structure no longer holds; the supervisor acts on it.

    Args:
        least_interval_s: a database is read no more often; a large one less often, by the time that it takes.
    """

    def __init__(self, databases: Sequence[Database], *, least_interval_s: float = LEAST_INTERVAL_S) -> None:
        super().__init__("soundness")
        self._databases = databases
        self._least_interval_s = least_interval_s
        self._due_s = dict.fromkeys(range(len(databases)), time.monotonic() + least_interval_s)

    def _work(self) -> None:
        while not self._stopping.wait(self._least_interval_s / 5):
            for number, database in enumerate(self._databases):
                if time.monotonic() >= self._due_s[number] and not self._stopping.is_set():
                    self._due_s[number] = time.monotonic() + self._read(database)

    def _read(self, database: Database) -> float:
        """Returns how long this database may be left alone."""
        began_s = time.monotonic()
        try:
            problem = find_damage(database.path)
        except StorageError as error:  # removed, or busy: the supervisor sees the one, the other passes
            _log.info("database_not_read_through", path=str(database.path), problem=str(error))
        else:
            if problem is not None:
                database.condemn(problem)
        return max(self._least_interval_s, (time.monotonic() - began_s) / SHARE_OF_TIME)
