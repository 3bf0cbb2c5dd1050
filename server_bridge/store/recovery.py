"""The store at the bridge's start: checked, and when damaged or gone, restored from its newest sound copy.

sound ──> used; its log damaged ──> the log is set aside
damaged ──> set aside ──┐
gone or empty ──────────┴─> a copy is sound ──> restored
                                  └─> none is ──> refused; no bridge has run here yet: a new store
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import structlog
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from edge_agent.errors import StorageError
from edge_agent.link.durable import put_in_place, read_file, remove_file, storage_errors, write_file
from server_bridge.errors import StoreDamaged
from server_bridge.store.copies import Copy, StoreCopies
from server_bridge.store.soundness import (
    Check,
    check_file,
    content_check,
    holds_tables,
    integrity_check,
    quick_check,
)

COPIES_FOLDER = "store-copies"
DAMAGED_KEPT = 2
SUSPICION_CAP_BYTES = 64 * 1024
LOG_MAGIC = (bytes.fromhex("377f0682"), bytes.fromhex("377f0683"))
"""How a WAL file begins: https://www.sqlite.org/fileformat2.html#the_write_ahead_log"""

_BESIDE = ("-shm", "-wal", "-journal")
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Restored:
    """The store was restored: from which copy, and why."""

    problem: str
    copy: Copy
    set_aside: str | None
    reason: ClassVar[str] = "restored"

    def describe(self, now_s: float) -> str:
        """For people."""
        aside = f"; it is now {self.set_aside}" if self.set_aside else ""
        age_min = max(now_s - self.copy.made_s, 0.0) / 60
        return f"{self.problem}{aside}; restored from {self.copy.path.name}, a copy of {age_min:.0f} min ago"


@dataclass(frozen=True, slots=True)
class LogLost:
    """The store is sound, but the log of its latest commits was not: it is as of its last checkpoint."""

    problem: str
    reason: ClassVar[str] = "log-damaged"

    def describe(self, _now_s: float) -> str:
        """For people."""
        return f"{self.problem}; what was committed since the last checkpoint, if anything, is lost"


def database_file(url: str) -> Path | None:
    """The file of a SQLite store; ``None`` for another kind, whose own copies are its administrator's."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        return None
    if parsed.get_backend_name() != "sqlite" or not parsed.database or parsed.database == ":memory:":
        return None
    return Path(parsed.database)


def copies_of(store: Path) -> StoreCopies:
    """The copies of a store: in a folder beside it."""
    return StoreCopies(store.parent / COPIES_FOLDER, store)


def suspect(store: Path, problem: str) -> None:
    """Leave word for the next start, which then reads the whole store: damage may be where a quick check is blind.

    Raises:
        StorageError: the disk refused.
    """
    write_file(_suspicion(store), problem.encode()[:SUSPICION_CAP_BYTES])


def recover(store: Path, copies: StoreCopies) -> Restored | LogLost | None:
    """Make sure that the store is sound before it is opened; ``None``: it was, or there has never been one.

    Raises:
        StorageError: it is damaged or gone and there is no sound copy, or the disk refused.
    """
    lost = _lose_damaged_log(store)
    problem = _problem(store, bool(copies.all()))
    restored = lost if problem is None else _restore(store, copies, problem)
    remove_file(_suspicion(store))
    return restored


def require_present(store: Path, copies: StoreCopies) -> None:
    """For the commands beside the bridge: they must not make a new store where one was lost.

    Raises:
        StorageError: the store is gone or emptied, and a copy of it is there.
    """
    if not copies.all():
        return
    remedy = "start the bridge: it restores its newest copy"
    if not store.exists():
        raise StorageError(f"{store} is gone", remedy)
    try:
        check_file(store, holds_tables)
    except StoreDamaged as error:
        raise StorageError(error.problem, remedy) from error


def refuse_lost(store: Path, copies: StoreCopies, traces: Iterable[Path]) -> None:
    """No empty store takes the place of one that is gone with all its copies: the fleet would be forgotten.

    Args:
        store: the file.
        copies: its copies.
        traces: files that only a bridge that has run leaves.

    Raises:
        StorageError: there was a store, and nothing is left to restore it from.
    """
    left = [trace for trace in traces if trace.exists()]
    if left and not store.exists() and not copies.all():
        raise StorageError(
            f"{store} is gone and no copy of it is in {copies.folder}, but {left[0].name} shows that a bridge has run",
            "put a backup of your own in its place; or begin with an empty store: register the gateways again with"
            " `server-bridge gateway provision`",
        )


def _lose_damaged_log(store: Path) -> LogLost | None:
    """SQLite takes a log that begins with anything else for an empty one, without a word."""
    log = store.with_name(f"{store.name}-wal")
    if not store.exists() or not log.exists():
        return None
    with storage_errors("read", log), log.open("rb") as file:
        head = file.read(len(LOG_MAGIC[0]))
    if not head or head in LOG_MAGIC:
        return None
    problem = f"{log} is damaged: it does not begin as a log"
    _log.error("store-log-damaged", log=str(log), problem=problem)
    put_in_place(log, store.with_name(f"{store.name}.damaged-wal"))
    return LogLost(problem)


def _problem(store: Path, copied: bool) -> str | None:
    if not store.exists():
        return f"{store} is gone" if copied else None
    doubt = _suspicion(store)
    checks: tuple[Check, ...] = (quick_check,)
    if doubt.is_file():
        _log.warning("store-suspected", store=str(store), problem=_read_doubt(doubt))
        checks = (integrity_check, content_check)
    try:
        check_file(store, *checks, *((holds_tables,) if copied else ()))
    except StoreDamaged as error:
        return error.problem
    if doubt.is_file():
        _log.warning("store-sound", store=str(store), detail="all of it was read; nothing is wrong with it now")
    return None


def _restore(store: Path, copies: StoreCopies, problem: str) -> Restored:
    _log.error("store-damaged", store=str(store), problem=problem)
    if not copies.all():
        raise StoreDamaged(
            problem,
            f"there is no copy of it in {copies.folder}: put a backup of your own in its place; or move it away, start"
            " with an empty store and register the gateways again with `server-bridge gateway provision`",
        )
    with copies.sound() as found:
        if found is None:
            raise StoreDamaged(
                f"{problem}; no copy in {copies.folder} is sound",
                "put a backup of your own in its place; or move it and that folder away, start with an empty store and"
                " register the gateways again with `server-bridge gateway provision`",
            )
        copy, made = found
        restored = Restored(problem, copy, _set_aside(store))
        put_in_place(made, store)
    _log.error("store-restored", store=str(store), detail=restored.describe(time.time()))
    return restored


def _set_aside(store: Path) -> str | None:
    """Rename the store and what SQLite keeps beside it; the second last one set aside is kept too, no more.

    A log file that a lost store left behind must not be taken for the restored one's.
    """
    present = [suffix for suffix in (*_BESIDE, "") if store.with_name(store.name + suffix).exists()]
    if not present:
        return None
    for number in range(DAMAGED_KEPT, 0, -1):
        for suffix in ("", *_BESIDE):
            older = _aside(store, number, suffix)
            if older.exists():
                if number == DAMAGED_KEPT:
                    remove_file(older)
                else:
                    put_in_place(older, _aside(store, number + 1, suffix))
    for suffix in present:
        put_in_place(store.with_name(store.name + suffix), _aside(store, 1, suffix))
    return _aside(store, 1, "").name if "" in present else None


def _aside(store: Path, number: int, suffix: str) -> Path:
    return store.with_name(f"{store.name}.damaged-{number}{suffix}")


def _suspicion(store: Path) -> Path:
    return store.with_name(f"{store.name}.suspect")


def _read_doubt(path: Path) -> str:
    try:
        return read_file(path, cap_bytes=SUSPICION_CAP_BYTES).decode(errors="replace")
    except StorageError as error:
        return error.problem
