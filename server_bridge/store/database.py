"""The engine: one writer at a time, transactions that join, migrations run at open."""

import os
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import structlog
from sqlalchemy import Connection, Engine, Table
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from edge_agent.errors import StorageError
from edge_agent.link.durable import put_in_place, storage_errors
from server_bridge.errors import StoreDamaged, StoreRemoved
from server_bridge.store.engine import make_engine
from server_bridge.store.migrate import upgrade
from server_bridge.store.recovery import database_file
from server_bridge.store.soundness import WAY_OUT, decoding, is_damage, refusal

BUSY_TIMEOUT_S = 30.0
MAGIC = b"SQLite format 3\x00"

_log = structlog.get_logger(__name__)


class Database:
    """Transactions over one SQLAlchemy engine.

    Writers of this process take turns behind one lock; those of other processes behind
    SQLite's. An inner transaction joins the outer one of its thread.

    Once damage is found, or the file found removed or replaced, nothing is read or written any more: what
    would be written is lost at the end, and must not be acknowledged.

    Args:
        url: a SQLAlchemy URL; ``sqlite:////path`` or ``postgresql+psycopg://...``.

    Attributes:
        loss: what ended it, found by whichever thread.

    Raises:
        ConfigError: no such dialect or driver.
        StorageError: it cannot be opened or migrated.
    """

    def __init__(self, url: str) -> None:
        self.loss: StoreDamaged | StoreRemoved | None = None
        self._identity: tuple[int, int] | None = None
        self.file = database_file(url)
        self._engine = make_engine(url, self._connect)
        self._name = str(self.file or self._engine.url.render_as_string())
        self._writer = threading.RLock()
        self._local = threading.local()
        self._size_bytes = 0
        with self._translated():
            upgrade(self._engine)
        self._descriptor = None if self.file is None else _descriptor(self.file)
        self._identity = None if self.file is None else _identity(self.file)
        self._log_identity = None if self.file is None else _identity(_log_of(self.file))

    @property
    def engine(self) -> Engine:
        """The engine, for tests and migrations."""
        return self._engine

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that may write; committed at the end, rolled back on an exception.

        Raises:
            StorageError: the database refuses; nothing is stored.
        """
        joined: Connection | None = getattr(self._local, "connection", None)
        if joined is not None:
            yield joined
            return
        with self._writer, self._translated(), self._engine.connect() as connection:
            self._local.connection = connection
            try:
                with connection.begin():
                    if connection.dialect.name == "sqlite":
                        connection.exec_driver_sql("BEGIN IMMEDIATE")
                    yield connection
            finally:
                self._local.connection = None
        self.require_present()

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """A consistent view; inside a writing transaction of this thread, that one's.

        Raises:
            StorageError: the database refuses.
        """
        joined: Connection | None = getattr(self._local, "connection", None)
        if joined is not None:
            yield joined
            return
        with self._translated(), self._engine.connect() as connection, connection.begin():
            if connection.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN DEFERRED")
            yield connection

    def require_present(self) -> None:
        """Its path still leads to the file that was opened; SQLite goes on without a word when it does not.

        Raises:
            StoreRemoved: it was deleted or replaced.
        """
        if self._identity is None or self.file is None or _identity(self.file) == self._identity:
            return
        what = "replaced" if self.file.exists() else "deleted"
        self.loss = self.loss or StoreRemoved(
            f"{self.file} was {what} while in use", "start the bridge again: it goes on with what is there, or its copy"
        )
        raise self.loss

    def look(self) -> None:
        """What can be seen wrong with the file from outside: cheap, for several times a second.

        SQLite reads what it has in its cache, and may serve a file that was overwritten for hours. The file is not
        opened for this: closing it would give up SQLite's locks on it, which are the process's.

        Raises:
            StoreRemoved, StoreDamaged: it is gone; it was cut, or overwritten from its beginning.
            StorageError: it cannot be looked at.
        """
        self.require_present()
        if self.file is None or self._descriptor is None:
            return
        with storage_errors("look at", self.file):
            head, size_bytes = os.pread(self._descriptor, len(MAGIC), 0), os.fstat(self._descriptor).st_size
        if size_bytes < self._size_bytes:
            self.give_up(StoreDamaged(f"{self.file} was cut to {size_bytes} bytes while in use", WAY_OUT))
        elif head != MAGIC:
            self.give_up(StoreDamaged(f"{self.file} was overwritten while in use: it is no database now", WAY_OUT))
        self._size_bytes = max(self._size_bytes, size_bytes)
        if self.loss is not None:
            raise self.loss

    def give_up(self, loss: StoreDamaged) -> None:
        """Damage was found from outside: nothing is read or written any more."""
        self.loss = self.loss or loss

    @contextmanager
    def decoding(self, table: str) -> Iterator[None]:
        """What a row holds is read inside.

        Raises:
            StoreDamaged: it cannot be read.
        """
        with self._translated(), decoding(table, self._name):
            yield

    def close(self) -> None:
        """Close every connection. The log of a file that is gone must not be taken for another's."""
        self._engine.dispose()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if isinstance(self.loss, StoreRemoved) and self.file is not None:
            log = _log_of(self.file)
            try:
                if self._log_identity is not None and _identity(log) == self._log_identity:
                    put_in_place(log, self.file.with_name(f"{self.file.name}.removed-wal"))
            except StorageError as error:
                _log.warning("lost-stores-log-left", log=str(log), problem=error.problem)

    def _connect(self) -> sqlite3.Connection:
        """One more connection to the file that was opened at first: never to a new one in its place."""
        self.require_present()
        mode = "rwc" if self._identity is None else "rw"
        where = f"file:{quote(str(self.file.absolute()))}?mode={mode}" if self.file is not None else "file::memory:"
        return sqlite3.connect(where, uri=True, timeout=BUSY_TIMEOUT_S, check_same_thread=False)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        if self.loss is not None:
            raise self.loss
        try:
            yield
        except StoreDamaged as error:
            self.loss = self.loss or error
            raise
        except SQLAlchemyError as error:
            cause = getattr(error, "orig", None) or error
            if is_damage(cause):
                self.loss = self.loss or StoreDamaged(f"{self._name} is damaged: {cause}", WAY_OUT)
                raise self.loss from error
            if self.file is not None:
                raise refusal(self.file, cause) from error
            raise StorageError(f"{self._name}: {cause}", "check that the database runs and answers") from error


def upsert(
    connection: Connection, table: Table, row: Mapping[str, Any], *, replace: Sequence[str] | None = None
) -> bool:
    """Insert a row, or replace columns of the one with its primary key.

    Args:
        replace: the columns to replace; ``None`` for all that the row gives, empty for none.

    Returns: whether a row was inserted or replaced.
    """
    keys = [column.name for column in table.primary_key]
    replaced = [name for name in row if name not in keys] if replace is None else list(replace)
    insert = postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)
    statement = insert.values(**row)
    if replaced:
        statement = statement.on_conflict_do_update(
            index_elements=keys, set_={name: statement.excluded[name] for name in replaced}
        )
    else:
        statement = statement.on_conflict_do_nothing(index_elements=keys)
    return connection.execute(statement).rowcount > 0


def _log_of(file: Path) -> Path:
    return file.with_name(f"{file.name}-wal")


def _descriptor(file: Path) -> int:
    with storage_errors("open", file):
        return os.open(file, os.O_RDONLY | os.O_CLOEXEC)


def _identity(file: Path) -> tuple[int, int] | None:
    """Which file a path leads to; ``None``: to none."""
    try:
        found = os.stat(file)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StorageError(f"cannot look at {file}: {error.strerror or error}", "check the disk") from error
    return found.st_dev, found.st_ino
