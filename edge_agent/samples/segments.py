"""Features of the recent samples in files that are only appended to, and removed whole."""

import os
import zlib
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import DataError, StorageError
from edge_agent.link.durable import DISK, FileOperations, make_directory, storage_errors
from edge_agent.samples.marks import BEGIN, Mark, stretches

SEGMENT_BYTES = 8 * 1024 * 1024
"""A file is removed when all its samples have left: so much room may be held by samples that are gone."""


class SegmentGone(StorageError):
    """The agent has removed the file since the database was looked at: look again."""


class Segments:
    """Numbered files in a folder beside the sample store's database.

    What is written is not synced at each commit, as the database's own log is not: a file is when it is full, and the
    last one at the next start. What a power cut took is found by its checksum.

    Args:
        database: the store's file.
        most_bytes: about where a file is full.
    """

    def __init__(self, database: Path, *, most_bytes: int = SEGMENT_BYTES, files: FileOperations = DISK) -> None:
        self._folder = database.with_suffix(".features")
        self._most_bytes = most_bytes
        self._files = files
        self._begun: set[int] = set()

    def prepare(self) -> None:
        """Make the folder, at the start; one that goes later is not made again: whoever removed it means it.

        Raises:
            StorageError: the disk refused.
        """
        make_directory(self._folder, files=self._files)

    def append(self, number: int, rows: Sequence[bytes | memoryview]) -> int:
        """Write at the end of a file, one portion after the other; returns where the first begins.

        A file that was begun and has gone is not made again.

        Raises:
            StorageError: the disk refused; what was written of it is nobody's, and taken back: on a full disk it would
                be the room that everything else needs.
        """
        path = self._path(number)
        with storage_errors("write", path):
            if number in self._begun:
                path.stat()
            descriptor = self._files.open_part(path)
            try:
                start = os.fstat(descriptor).st_size
                self._write(descriptor, rows, start)
            finally:
                os.close(descriptor)
        self._begun.add(number)
        return start

    def _write(self, descriptor: int, rows: Sequence[bytes | memoryview], start: int) -> None:
        end = start
        try:
            for portion in rows:
                self._files.write_at(descriptor, portion, end)
                end += len(portion)
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, start)
            raise

    def is_full(self, number: int) -> bool:
        """Whether another file should be begun; one that is, is synced."""
        path = self._path(number)
        with storage_errors("look at", path):
            if not path.exists() or path.stat().st_size < self._most_bytes:
                return False
        self.sync(number)
        return True

    def sync(self, number: int) -> None:
        """Bring a file to the disk.

        Raises:
            StorageError: the disk refused.
        """
        path = self._path(number)
        if not path.exists():
            return
        with storage_errors("sync", path):
            descriptor = self._files.open_part(path)
            try:
                self._files.sync(descriptor)
            finally:
                os.close(descriptor)

    def read(self, number: int, start: int, n: int, row_bytes: int, checksum: int) -> NDArray[np.uint8]:
        """(n, row_bytes) the rows of a chunk.

        Raises:
            SegmentGone: the file is not there.
            DataError: they are not what was written.
            StorageError: the disk refused.
        """
        return self.read_some(number, start, row_bytes, [BEGIN, (n, checksum)], np.arange(n))

    def read_some(
        self, number: int, start: int, row_bytes: int, marks: Sequence[Mark], rows: NDArray[np.intp]
    ) -> NDArray[np.uint8]:
        """(k, row_bytes) some rows of a chunk, which rise; no more is read and checked than lies between its marks.

        Raises:
            SegmentGone, DataError, StorageError: as :meth:`read`, as far as it is read.
        """
        path = self._path(number)
        found: list[NDArray[np.uint8]] = [np.zeros((0, row_bytes), np.uint8)]
        with storage_errors("read", path):
            try:
                with path.open("rb", buffering=0) as file:
                    for (begin, before), (end, checksum) in stretches(marks, rows):
                        file.seek(start + begin * row_bytes)
                        part = np.empty((end - begin, row_bytes), np.uint8)
                        size = _read_whole(file.fileno(), part.data.cast("B")) if part.size else 0
                        if size != part.size or zlib.crc32(part.data, before) != checksum:
                            raise DataError(f"{path}, at {start}: the checksum of {len(part)} samples does not fit")
                        chosen = rows[(rows >= begin) & (rows < end)] - begin
                        found.append(part if len(chosen) == len(part) else part[chosen])
            except FileNotFoundError:
                raise SegmentGone(f"{path} is not there") from None
        return found[1] if len(found) == 2 else np.concatenate(found)

    def numbers(self) -> set[int]:
        """The files there are.

        Raises:
            StorageError: the disk refused.
        """
        with storage_errors("look at", self._folder):
            if not self._folder.is_dir():
                return set()
            return {int(path.stem) for path in self._folder.glob("*.rows") if path.stem.isdigit()}

    def remove(self, numbers: Collection[int]) -> None:
        """Remove files that no chunk refers to.

        Raises:
            StorageError: the disk refused.
        """
        for number in numbers:
            path = self._path(number)
            with storage_errors("remove", path):
                if path.exists():
                    self._files.unlink(path)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number}.rows"


def _read_whole(descriptor: int, into: memoryview) -> int:
    done = 0
    while done < len(into):
        got = os.readv(descriptor, [into[done:]])
        if not got:
            break
        done += got
    return done
