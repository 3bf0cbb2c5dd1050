"""One SQLite database in WAL mode, usable from any thread, with nested transactions."""

import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from edge_agent.errors import StorageError

Value = str | int | float | bytes | None
Row = tuple[Any, ...]
Synchronous = Literal["FULL", "NORMAL"]

LOCK_TIMEOUT_S = 30.0
BUSY_TIMEOUT_S = 10.0
VALUES_A_STATEMENT = 600
WAL_LIMIT_BYTES = 8 * 1024 * 1024
CACHE_KIB = 512
"""SQLite's own choice is 2,000 a database: 1.6 MB more on a gateway, and no faster on its batches (measured)."""


class DatabaseCorrupt(StorageError):
    """The file is no database, or a damaged one; reading it again will not help."""


class Database:
    """An open database; made by :func:`open_database` and :func:`open_read_only`.

    Attributes:
        damage: what was found wrong with the file since it was opened; reading it again will not help.
        transactions: how many outermost ones have begun; the number of the one under way.
        undone: the number of the latest in which something was rolled back: what is held in memory of it is wrong.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, *, read_only: bool) -> None:
        self.path = path
        self.damage: str | None = None
        self.transactions = 0
        self.undone = 0
        self._file = _identity(path)
        self._size_bytes = 0
        self._connection = connection
        self._begin = "BEGIN" if read_only else "BEGIN IMMEDIATE"
        self._lock = threading.RLock()
        self._depth = 0

    @property
    def is_removed(self) -> bool:
        """Whether its path no longer leads to the file that was opened: what is written is lost at the end.

        SQLite goes on without a word with a file that was deleted or replaced.
        """
        return _identity(self.path) != self._file

    def look(self) -> str | None:
        """What can be seen wrong with the file from outside: cheap, for every second.

        It is not opened for that: closing it would take SQLite's locks from it, whoever of this process opened it.

        Raises:
            StorageError: the file cannot be looked at.
        """
        size_bytes = _size(self.path)
        if self.damage is None and not self.is_removed and size_bytes < self._size_bytes:
            self.damage = f"it was cut from {self._size_bytes} to {size_bytes} bytes while in use"
        self._size_bytes = max(self._size_bytes, size_bytes)
        return self.damage

    def condemn(self, problem: str) -> "DatabaseCorrupt":
        """What a row holds cannot be what was written: the error to raise; the file is known as damaged."""
        self.damage = self.damage or problem
        return DatabaseCorrupt(f"{self.path}: {problem}", "restore it or let it be made anew")

    @contextmanager
    def understood(self) -> Iterator[None]:
        """Around what makes sense of rows: what cannot be made sense of was not written by this program.

        Raises:
            DatabaseCorrupt: instead of what reading the values raised.
        """
        try:
            yield
        except (ValueError, TypeError, LookupError) as error:
            raise self.condemn(f"a row makes no sense: {str(error)[:200]}") from error

    def define(self, component: str, statements: Sequence[str]) -> None:
        """Bring one component's tables up to date.

        Statements already applied are never run again, so a newer version only appends to them.

        Raises:
            StorageError: the file was written by a newer version, or a statement failed.
        """
        with self.transaction():
            self.execute("CREATE TABLE IF NOT EXISTS component (name TEXT PRIMARY KEY, version INTEGER NOT NULL)")
            rows = self.query("SELECT version FROM component WHERE name = ?", (component,))
            version = int(rows[0][0]) if rows else 0
            if version > len(statements):
                raise StorageError(
                    f"{self.path}: tables of {component!r} are of version {version}, this program knows"
                    f" {len(statements)}",
                    "install the newer version again",
                )
            for statement in statements[version:]:
                self.execute(statement)
            self.execute("INSERT OR REPLACE INTO component VALUES (?, ?)", (component, len(statements)))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; an inner one joins the outer and can fail alone.

        On a read-only database: one consistent view.

        Raises:
            StorageError: the database cannot be locked or written; everything is rolled back.
        """
        with self._held():
            level = self._enter()
            try:
                yield
                self._still_open()
                self._run(f"RELEASE level_{level}" if level else "COMMIT")
            except BaseException:
                self._undo(level)
                raise
            finally:
                self._depth -= 1

    def execute(self, sql: str, parameters: Sequence[Value] = ()) -> int:
        """Run one statement inside a transaction; returns how many rows changed.

        Raises:
            StorageError: SQLite refused (disk full, corrupt, constraint ...).
        """
        with self._held():
            self._require_transaction()
            return self._run(sql, parameters).rowcount

    def execute_many(self, sql: str, rows: Iterable[Sequence[Value]]) -> int:
        """Run one statement for each row, inside a transaction; returns how many rows changed.

        Raises:
            StorageError: as for :meth:`execute`.
        """
        with self._held():
            self._require_transaction()
            with self._translated():
                return self._connection.executemany(sql, rows).rowcount

    def execute_values(self, head: str, rows: Sequence[Sequence[Value]]) -> int:
        """``head VALUES (?, ...), (?, ...) ...`` for all rows, in a transaction; returns how many rows changed.

        As :meth:`execute_many`, but Python's other threads are let in once in `VALUES_A_STATEMENT` values, not at
        each row: with a thread that is busy, handing over takes longer than the row.

        Raises:
            StorageError: as for :meth:`execute`.
        """
        if not rows:
            return 0
        changed, columns = 0, len(rows[0])
        most = max(1, VALUES_A_STATEMENT // columns)
        with self._held():
            self._require_transaction()
            for start in range(0, len(rows), most):
                portion = rows[start : start + most]
                marks = ", ".join([f"({', '.join('?' * columns)})"] * len(portion))
                values = [value for row in portion for value in row]
                changed += self._run(f"{head} VALUES {marks}", values).rowcount
        return changed

    def query(self, sql: str, parameters: Sequence[Value] = ()) -> list[Row]:
        """All rows of a SELECT, inside a transaction or not.

        Raises:
            StorageError: SQLite refused.
        """
        with self._held():
            if self._depth:
                self._still_open()
            with self._translated():
                return self._connection.execute(sql, parameters).fetchall()

    def shrink(self) -> None:
        """Give room that is no longer used back to the file system; outside of a transaction.

        Raises:
            StorageError: the disk refuses: for a while it holds all content twice.
        """
        with self._held():
            self._run("VACUUM")

    def close(self) -> None:
        """Close; anything afterwards raises ``StorageError``."""
        with self._held(), self._translated():
            self._connection.close()

    @contextmanager
    def _held(self) -> Iterator[None]:
        if not self._lock.acquire(timeout=LOCK_TIMEOUT_S):
            raise StorageError(f"{self.path}: another thread has held the database for {LOCK_TIMEOUT_S:.0f} s")
        try:
            yield
        finally:
            self._lock.release()

    def _run(self, sql: str, parameters: Sequence[Value] = ()) -> sqlite3.Cursor:
        with self._translated():
            return self._connection.execute(sql, parameters)

    def _require_transaction(self) -> None:
        if self._depth == 0:
            raise RuntimeError("execute() outside of transaction()")
        self._still_open()

    def _still_open(self) -> None:
        """SQLite rolls a whole transaction back by itself, for example when the disk is full."""
        if not self._connection.in_transaction:
            raise StorageError(f"{self.path}: the transaction has been rolled back by an earlier error")

    def _enter(self) -> int:
        level = self._depth
        if level:
            self._still_open()
        self._run(f"SAVEPOINT level_{level}" if level else self._begin)
        self.transactions += not level
        self._depth += 1
        return level

    def _undo(self, level: int) -> None:
        self.undone = self.transactions
        if not self._connection.in_transaction:
            return
        if level:
            self._run(f"ROLLBACK TO level_{level}")
            self._run(f"RELEASE level_{level}")
        else:
            self._run("ROLLBACK")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, sqlite3.Warning, OverflowError) as error:
            kind = DatabaseCorrupt if _is_corruption(error) else StorageError
            if kind is DatabaseCorrupt:
                self.damage = str(error)
            raise kind(f"{self.path}: {error}", _hint(error)) from error


def open_database(path: Path, *, synchronous: Synchronous = "FULL", max_bytes: int | None = None) -> Database:
    """Open ``path`` for reading and writing, made if absent, after a quick integrity check.

    Args:
        path: its folder must exist.
        synchronous: ``FULL`` syncs each commit; ``NORMAL`` may lose the last commits at a power cut, never integrity.
        max_bytes: the file grows no further; writes beyond raise ``StorageError``.

    Raises:
        DatabaseCorrupt: the file is damaged.
        StorageError: the file cannot be opened.
    """
    database = _connect(path, "rwc", read_only=False)
    try:
        database._run("PRAGMA journal_mode = WAL")
        database._run(f"PRAGMA synchronous = {synchronous}")
        database._run("PRAGMA foreign_keys = ON")
        database._run(f"PRAGMA journal_size_limit = {WAL_LIMIT_BYTES}")
        database._run(f"PRAGMA cache_size = -{CACHE_KIB}")
        if max_bytes is not None:
            page_bytes = int(database.query("PRAGMA page_size")[0][0])
            database._run(f"PRAGMA max_page_count = {max(1, max_bytes // page_bytes)}")
        _check(database)
    except StorageError:
        database.close()
        raise
    return database


def find_damage(path: Path) -> str | None:
    """Read a whole database, perhaps in use, and say what is wrong with its structure.

    SQLite's own readers find damage only where they read, and what they have in their cache may hide it for hours.

    Raises:
        StorageError: it cannot be read for another reason than damage.
    Cost: every page is read: 0.2 s for 82 MB that the kernel holds (measured).
    """
    try:
        with closing(open_read_only(path)) as database:
            _check(database)
    except DatabaseCorrupt as error:
        return error.problem
    return None


def open_read_only(path: Path) -> Database:
    """Open an existing database, perhaps in use by another process, for reading.

    Raises:
        StorageError: absent, unreadable or corrupt.
    """
    database = _connect(path, "ro", read_only=True)
    try:
        database.query("SELECT count(*) FROM sqlite_schema")
    except StorageError:
        database.close()
        raise
    return database


def _connect(path: Path, mode: str, *, read_only: bool) -> Database:
    uri = f"file:{quote(str(path.absolute()))}?mode={mode}"
    try:
        connection = sqlite3.connect(
            uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )
    except sqlite3.Error as error:
        raise StorageError(f"{path}: {error}", _hint(error)) from error
    return Database(path, connection, read_only=read_only)


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file a path leads to; None: to none."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StorageError(f"{path}: {error}") from error
    return found.st_dev, found.st_ino


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError as error:
        if _identity(path) is None:
            return 0
        raise StorageError(f"{path}: {error}") from error


def _check(database: Database) -> None:
    verdict = database.query("PRAGMA quick_check(1)")
    if verdict != [("ok",)]:
        raise DatabaseCorrupt(f"{database.path} is corrupt: {verdict[0][0]}", "restore it or let it be made anew")


def _is_corruption(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _hint(error: Exception) -> str:
    text = str(error)
    if "full" in text:
        return "free space on this disk"
    if "not a database" in text or "malformed" in text:
        return "the file is corrupt: restore it or let it be made anew"
    if "unable to open" in text:
        return "check that the folder exists and may be written"
    return ""
