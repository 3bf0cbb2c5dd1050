"""Whether a SQLite file is sound: its structure, and that what its rows hold can be read."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

from pydantic import TypeAdapter

from edge_agent.errors import StorageError
from edge_agent.link.durable import TEMPORARY_SUFFIX, remove_file, write_file
from edge_agent.wire.messages import EventBody, FlagEvent, Reply, State
from edge_agent.wire.messages.command import CommandAction
from server_bridge.errors import StoreDamaged

BUSY_TIMEOUT_S = 30.0
PROBE_BYTES = 4096
WAY_OUT = "start the bridge: it sets the file aside and restores its newest copy"

_DISK_ERRORS = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN)

Check = Callable[[sqlite3.Connection, Path], None]

_ACTION: TypeAdapter[CommandAction] = TypeAdapter(CommandAction)
_BODY: TypeAdapter[EventBody] = TypeAdapter(EventBody)
_CONTENT: tuple[tuple[str, str, Callable[[str], object]], ...] = (
    ("states", "body", State.model_validate_json),
    ("flags", "body", FlagEvent.model_validate_json),
    ("events", "body", _BODY.validate_json),
    ("outbox_marks", "above", json.loads),
    ("commands", "action", _ACTION.validate_json),
    ("commands", "reply", Reply.model_validate_json),
    ("commands", "late_reply", Reply.model_validate_json),
    ("adaptations", "base", json.loads),
    ("rounds", "body", json.loads),
    ("decisions", "facts", json.loads),
    ("cohort_moves", "statistics", json.loads),
)


def is_damage(error: BaseException) -> bool:
    """Whether what SQLite says means that the file's bytes are wrong."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    damaged = code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
    return damaged or (isinstance(error, sqlite3.Error) and "Could not decode to UTF-8" in str(error))


def refusal(path: Path, error: BaseException) -> StorageError:
    """What to say of a refusal that is no damage: SQLite often says less than the operating system does."""
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in _DISK_ERRORS:
        probe = path.with_name(f".{path.name}.probe{TEMPORARY_SUFFIX}")
        try:
            write_file(probe, bytes(PROBE_BYTES))
            remove_file(probe)
        except StorageError as says:
            why = getattr(says.__cause__, "strerror", None) or says.problem
            return StorageError(f"{path}: {error}: {why}", says.hint)
    return StorageError(f"{path}: {error}", "check that its disk has room and may be written")


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a database that is there.

    Raises:
        StoreDamaged: its bytes are wrong.
        StorageError: SQLite refuses for another reason (disk full, read-only, no right).
    """
    try:
        uri = f"file:{quote(str(path.absolute()))}?mode=rw"
        with closing(sqlite3.connect(uri, uri=True, timeout=BUSY_TIMEOUT_S, isolation_level=None)) as connection:
            yield connection
    except sqlite3.Error as error:
        if is_damage(error):
            raise StoreDamaged(f"{path} is damaged: {error}", WAY_OUT) from error
        raise refusal(path, error) from error


def check_file(path: Path, *checks: Check) -> None:
    """Every check, on one connection.

    Raises:
        StoreDamaged, StorageError: as :func:`opened`.
    """
    with opened(path) as connection:
        for check in checks:
            check(connection, path)


def quick_check(connection: sqlite3.Connection, path: Path) -> None:
    """The structure of every page; indices are not compared with their tables."""
    _pragma("quick_check", connection, path)


def integrity_check(connection: sqlite3.Connection, path: Path) -> None:
    """The structure of every page, and every index."""
    _pragma("integrity_check", connection, path)


def holds_tables(connection: sqlite3.Connection, path: Path) -> None:
    """What a power cut may leave of a database is an empty file, which SQLite finds sound."""
    if connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'gateways'").fetchone() != (1,):
        raise StoreDamaged(f"{path} is empty", WAY_OUT)


def content_check(connection: sqlite3.Connection, path: Path) -> None:
    """Every row that a reader would have to decode can be decoded; SQLite itself keeps no checksums of them."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    for table, column, decode in _CONTENT:
        if table not in tables:
            continue  # of an older schema
        with decoding(table, path):
            for (value,) in connection.execute(f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL"):
                decode(value)


@contextmanager
def decoding(table: str, path: Path | str = "the store") -> Iterator[None]:
    """What a row holds is read inside: bytes that the bridge never wrote are damage.

    Raises:
        StoreDamaged: it cannot be read.
    """
    try:
        yield
    except (ValueError, TypeError, KeyError) as error:
        problem = str(error).replace("\n", " ")[:300]
        raise StoreDamaged(f"{path} is damaged: a row of {table} cannot be read: {problem}", WAY_OUT) from error


def _pragma(name: str, connection: sqlite3.Connection, path: Path) -> None:
    (verdict,) = connection.execute(f"PRAGMA {name}(1)").fetchone()
    if verdict != "ok":
        raise StoreDamaged(f"{path} is damaged: {' '.join(str(verdict).split())}", WAY_OUT)
