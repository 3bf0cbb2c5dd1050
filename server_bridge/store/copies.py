"""Verified copies of the store, in a folder beside it: two at most, the newest last."""

import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from edge_agent.errors import StorageError
from edge_agent.link.durable import (
    make_directory,
    put_in_place,
    remove_file,
    storage_errors,
    sweep_temporaries,
    temporary_beside,
)
from server_bridge.errors import StoreDamaged
from server_bridge.store.soundness import (
    check_file,
    content_check,
    holds_tables,
    integrity_check,
    opened,
)

COPIES_KEPT = 2
SPARE_BYTES = 8 * 1024 * 1024
"""A copy is not made where it would leave less than this of the disk: the store itself comes first."""

_NAME = re.compile(r"(\d{1,15})\.db")
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of the store; numbers rise. ``made_s`` is its file's time, seconds since 1970."""

    number: int
    path: Path
    made_s: float
    size_bytes: int


class StoreCopies:
    """The copies of one store.

    Args:
        folder: made at the first copy.
        store: the database's file.
    """

    def __init__(self, folder: Path, store: Path) -> None:
        self._folder = folder
        self._store = store

    @property
    def folder(self) -> Path:
        """Where they are."""
        return self._folder

    def all(self) -> list[Copy]:
        """Every copy, the newest first.

        Raises:
            StorageError: the folder cannot be read.
        """
        if not self._folder.is_dir():
            return []
        with storage_errors("list", self._folder):
            named = [(_NAME.fullmatch(path.name), path) for path in self._folder.iterdir() if path.is_file()]
            found = [(int(name[1]), path) for name, path in named if name]
            stats = [(number, path, path.stat()) for number, path in found]
        return sorted(
            (Copy(number, path, stat.st_mtime, stat.st_size) for number, path, stat in stats),
            key=lambda copy: copy.number,
            reverse=True,
        )

    def take(self) -> Copy:
        """Copy the store as it is now, while it is in use; the copy is checked, then the oldest beyond two go.

        Raises:
            StoreDamaged: the copy is not sound, so the store is not.
            StorageError: the disk refused, or is too full for a copy; former copies are as they were.
        """
        make_directory(self._folder)
        sweep_temporaries(self._folder)
        self._require_room()
        number = 1 + max((copy.number for copy in self.all()), default=0)
        path = self._folder / f"{number}.db"
        try:
            put_in_place(self._copied(temporary_beside(path)), path)
        finally:
            sweep_temporaries(self._folder)
        copies = self.all()
        for old in copies[COPIES_KEPT:]:
            remove_file(old.path)
        return copies[0]

    @contextmanager
    def sound(self) -> Iterator[tuple[Copy, Path] | None]:
        """The newest copy that is sound, and a file of its bytes that may be put in the store's place inside.

        ``None``: there is none.

        Raises:
            StorageError: the disk refused, and no copy could be read and is sound.
        """
        try:
            yield self._newest_sound()
        finally:
            sweep_temporaries(self._folder)

    def _newest_sound(self) -> tuple[Copy, Path] | None:
        unread: StorageError | None = None
        for copy in self.all():
            temporary = temporary_beside(copy.path)
            try:
                with storage_errors("copy", copy.path):
                    shutil.copyfile(copy.path, temporary)
                check_file(temporary, holds_tables, integrity_check, content_check)
                return copy, temporary
            except StoreDamaged as error:
                _log.error("store-copy-damaged", copy=str(copy.path), problem=error.problem)
            except StorageError as error:
                _log.error("store-copy-unread", copy=str(copy.path), problem=error.problem)
                unread = unread or error
            remove_file(temporary)
        if unread is not None:
            raise unread
        return None

    def _copied(self, workshop: Path) -> Path:
        """A sound copy in a folder that is made for it, and for what SQLite puts beside it."""
        make_directory(workshop)
        copy = workshop / self._store.name
        with opened(self._store) as source, closing(sqlite3.connect(copy, isolation_level=None)) as target:
            source.backup(target)
            target.execute("PRAGMA journal_mode = DELETE").close()  # one file, whole in itself
            integrity_check(target, self._store)
            holds_tables(target, self._store)
        return copy

    def _require_room(self) -> None:
        with storage_errors("look at", self._folder):
            needed = self._store.stat().st_size + SPARE_BYTES
            free = shutil.disk_usage(self._folder).free
        if free < needed:
            raise StorageError(
                f"no copy of {self._store} is made: {free} bytes are free in {self._folder}, {needed} are needed",
                "free space on this disk",
            )
