"""What the agent keeps: opened, watched while in use, and what is corrupt set aside, named, and made anew."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import structlog

from edge_agent.errors import StorageError
from edge_agent.link.database import Database, DatabaseCorrupt, Synchronous, open_database
from edge_agent.link.durable import remove_file, storage_errors

ASIDE_KEPT = 2
"""So many corrupt files of one name stay for whoever looks into it; a disk that goes on damaging must not fill."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Loss:
    """A database that cannot be used any further.

    Attributes:
        name: the file's.
        event: the word for the log.
        hint: what happens now.
    """

    name: str
    event: str
    problem: str
    hint: str


class AgentStorage:
    """The agent's two databases.

    Attributes:
        agent: what must not be lost: outbox, floors, journal, orders, monitor.
        samples: the samples and their counts.
        damage: what was wrong with those found corrupt at the start, by the file's name.

    Raises:
        StorageError: one cannot be opened, or not even a new one can be made.
    """

    def __init__(self, data_dir: Path) -> None:
        self.damage: dict[str, str] = {}
        self.agent = self._open(data_dir / "agent.db", "FULL")
        try:
            self.samples = self._open(data_dir / "samples.db", "NORMAL")
        except StorageError:
            self.agent.close()
            raise

    def look(self) -> Loss | None:
        """Whether one was damaged, deleted or replaced since; cheap, for every second."""
        for database in (self.agent, self.samples):
            problem = database.look()
            if problem is not None:
                return Loss(database.path.name, "database_damaged", problem, "set aside; the agent ends for a new one")
            if database.is_removed:
                problem = "the file was removed or replaced while in use"
                return Loss(database.path.name, "database_removed", problem, "the agent ends and makes a new one")
        return None

    def close(self) -> None:
        """One that was found damaged while in use is set aside here: the next start might not see the damage."""
        for database in (self.agent, self.samples):
            try:
                database.close()
                if database.damage is not None and not database.is_removed:
                    set_aside(database.path, database.damage)
            except StorageError as error:
                _log.error("database_not_closed", path=str(database.path), problem=str(error))

    def _open(self, path: Path, synchronous: Synchronous) -> Database:
        database, damage = open_or_set_aside(path, synchronous=synchronous)
        if damage is not None:
            self.damage[path.name] = damage
        return database


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
    """Rename a corrupt database, closed by its user, to ``<name>.corrupt-<time>``; older ones beyond the kept go.

    Raises:
        StorageError: the disk refuses.
    """
    stamp = time.time_ns()
    for suffix in ("-shm", "-wal", ""):
        file = path.with_name(path.name + suffix)
        if file.exists():
            with storage_errors("set aside", file):
                os.replace(file, path.with_name(f"{path.name}.corrupt-{stamp}{suffix}"))
    _log.error("database_set_aside", path=str(path), problem=problem)
    _forget_old(path)


def _forget_old(path: Path) -> None:
    """By the order in which they were written last, not by their names: the clock may have been anywhere."""
    asides: dict[str, list[Path]] = {}
    for file in path.parent.glob(f"{path.name}.corrupt-*"):
        asides.setdefault(file.name.removesuffix("-wal").removesuffix("-shm"), []).append(file)
    oldest_first = sorted(asides.values(), key=lambda files: max(_changed_ns(file) for file in files))
    for file in (file for files in oldest_first[:-ASIDE_KEPT] for file in files):
        remove_file(file)
        _log.warning("old_damage_removed", path=str(file))


def _changed_ns(file: Path) -> int:
    with storage_errors("look at", file):
        return file.stat().st_ctime_ns


def _emptiness(database: Database) -> str | None:
    """What a power cut may leave of a database: a file without anything in it, which SQLite finds sound."""
    if database.query("SELECT count(*) FROM sqlite_schema") != [(0,)]:
        return None
    _log.error("database_empty", path=str(database.path))
    return f"{database.path} was there and empty: what it held is lost"
