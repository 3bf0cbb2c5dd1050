"""Opening what the agent keeps; what is corrupt is set aside, named, and made anew."""

import os
import time
from pathlib import Path

import structlog

from edge_agent.errors import StorageError
from edge_agent.link.database import Database, Synchronous, open_database

_log = structlog.get_logger(__name__)


def open_or_set_aside(path: Path, *, synchronous: Synchronous) -> tuple[Database, str | None]:
    """Open a database; a corrupt one is renamed to ``<name>.corrupt-<time>`` and a new one is made.

    Returns:
        The database, and what was wrong with the one set aside.

    Raises:
        StorageError: not even a new one can be made.
    """
    try:
        return open_database(path, synchronous=synchronous), None
    except StorageError as error:
        if not path.exists():
            raise
        problem = str(error)
    stamp = int(time.time())
    for suffix in ("", "-wal", "-shm"):
        file = path.with_name(path.name + suffix)
        if file.exists():
            os.replace(file, path.with_name(f"{path.name}.corrupt-{stamp}{suffix}"))
    _log.error("database_set_aside", path=str(path), problem=problem)
    return open_database(path, synchronous=synchronous), problem
