"""Opening what the agent keeps; what is corrupt is set aside, named, and made anew."""

import os
import time
from pathlib import Path

import structlog

from edge_agent.link.database import Database, DatabaseCorrupt, Synchronous, open_database
from edge_agent.link.durable import storage_errors

_log = structlog.get_logger(__name__)


def open_or_set_aside(path: Path, *, synchronous: Synchronous) -> tuple[Database, str | None]:
    """Open a database; a corrupt one is renamed to ``<name>.corrupt-<time>`` and a new one is made.

    One that cannot be opened for another reason (disk full, no right, in use) is left alone: what
    it holds must not be lost for that.

    Returns:
        The database, and what was wrong with the one set aside.

    Raises:
        StorageError: it cannot be opened, or not even a new one can be made.
    """
    was_there = path.exists()
    try:
        database = open_database(path, synchronous=synchronous)
        emptiness = _emptiness(database) if was_there else None
        database.define("opened", ())  # one that ends before its parts have tables is not taken for one that lost them
        return database, emptiness
    except DatabaseCorrupt as error:
        problem = str(error)
    set_aside(path, problem)
    return open_database(path, synchronous=synchronous), problem


def set_aside(path: Path, problem: str) -> None:
    """Rename a corrupt database, closed by its user, to ``<name>.corrupt-<time>``.

    Raises:
        StorageError: the disk refuses.
    """
    stamp = int(time.time())
    for suffix in ("-shm", "-wal", ""):
        file = path.with_name(path.name + suffix)
        if file.exists():
            with storage_errors("set aside", file):
                os.replace(file, path.with_name(f"{path.name}.corrupt-{stamp}{suffix}"))
    _log.error("database_set_aside", path=str(path), problem=problem)


def _emptiness(database: Database) -> str | None:
    """What a power cut may leave of a database: a file without anything in it, which SQLite finds sound."""
    if database.query("SELECT count(*) FROM sqlite_schema") != [(0,)]:
        return None
    _log.error("database_empty", path=str(database.path))
    return f"{database.path} was there and empty: what it held is lost"
