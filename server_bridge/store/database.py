"""The engine: one writer at a time, transactions that join, migrations run at open."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, Table, create_engine, event
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from edge_agent.errors import ConfigError, StorageError
from server_bridge.store.migrate import upgrade

BUSY_TIMEOUT_S = 30.0


class Database:
    """Transactions over one SQLAlchemy engine.

    Writers of this process take turns behind one lock; those of other processes behind
    SQLite's. An inner transaction joins the outer one of its thread.

    Args:
        url: a SQLAlchemy URL; ``sqlite:////path`` or ``postgresql+psycopg://...``.

    Raises:
        ConfigError: no such dialect or driver.
        StorageError: it cannot be opened or migrated.
    """

    def __init__(self, url: str) -> None:
        self._engine = _make_engine(url)
        self._writer = threading.RLock()
        self._local = threading.local()
        with _translated(f"store {self._engine.url.render_as_string()}"):
            upgrade(self._engine)

    @property
    def engine(self) -> Engine:
        """The engine, for tests and migrations."""
        return self._engine

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A transaction that may write; committed at the end, rolled back on an exception.

        Raises:
            StorageError: the database refuses.
        """
        joined: Connection | None = getattr(self._local, "connection", None)
        if joined is not None:
            yield joined
            return
        with self._writer, _translated("store"), self._engine.connect() as connection:
            self._local.connection = connection
            try:
                with connection.begin():
                    if connection.dialect.name == "sqlite":
                        connection.exec_driver_sql("BEGIN IMMEDIATE")
                    yield connection
            finally:
                self._local.connection = None

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
        with _translated("store"), self._engine.connect() as connection, connection.begin():
            if connection.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN DEFERRED")
            yield connection

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()


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


def _make_engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() not in ("sqlite", "postgresql"):
            raise ConfigError(
                f"store url {_shown(url)!r}: unknown kind of database", "use sqlite:///path or postgresql+psycopg://"
            )
        if parsed.get_backend_name() == "sqlite":
            engine = create_engine(parsed, connect_args={"timeout": BUSY_TIMEOUT_S, "check_same_thread": False})
            event.listen(engine, "connect", _prepare_sqlite)
            return engine
        return create_engine(parsed, pool_pre_ping=True)
    except (ArgumentError, ImportError) as error:
        raise ConfigError(f"store url {_shown(url)!r}: {error}", "use sqlite:///path or install the driver") from None


def _shown(url: str) -> str:
    """Without its password."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except ArgumentError:
        return url


def _prepare_sqlite(connection: Any, _entry: ConnectionPoolEntry) -> None:
    """WAL, fsync at every commit, and no transactions of the driver's own making."""
    connection.isolation_level = None
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}").close()


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        raise StorageError(f"{what}: {cause}", "check the disk and that no other bridge holds the store") from error
