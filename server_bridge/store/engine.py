"""SQLAlchemy engines of the kinds of database that the store may be kept in."""

import sqlite3
from collections.abc import Callable
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import ConnectionPoolEntry

from edge_agent.errors import ConfigError


def make_engine(url: str, connect: Callable[[], sqlite3.Connection]) -> Engine:
    """An engine that has connected to nothing yet.

    Args:
        connect: makes the connections of a SQLite engine.

    Raises:
        ConfigError: no such kind of database, or no driver for it.
    """
    try:
        parsed = make_url(url)
        if parsed.get_backend_name() not in ("sqlite", "postgresql"):
            raise ConfigError(
                f"store url {_shown(url)!r}: unknown kind of database", "use sqlite:///path or postgresql+psycopg://"
            )
        if parsed.get_backend_name() == "sqlite":
            engine = create_engine(parsed, creator=connect)
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
