"""A blob being fetched: its chunks so far, and a bitmap that never claims more than the disk holds."""

import os
from pathlib import Path

from edge_agent.errors import StorageError
from edge_agent.link.durable import FileOperations, read_file, remove_file, storage_errors, write_file
from edge_agent.wire.blobs import CHUNK_LIST_CAP_BYTES, BlobReference, ChunkList, read_chunk_list, sha256_hex
from edge_agent.wire.errors import WireError

SYNC_EVERY_CHUNKS = 16


class PartFile:
    """``<digest>`` with the bytes, ``<digest>.list`` with the chunk list, ``<digest>.bits`` with the bitmap.

    Order on disk: bytes are synced before the bitmap says that they are there.
    """

    def __init__(self, directory: Path, digest: str, *, files: FileOperations) -> None:
        self.digest = digest
        self.data_path = directory / digest
        self._list_path = directory / f"{digest}.list"
        self._bits_path = directory / f"{digest}.bits"
        self._files = files
        self._descriptor: int | None = None
        self._chunk_bytes = 1
        self._have: list[bool] = []
        self._unsynced = 0

    @property
    def missing(self) -> list[int]:
        """Indices of the chunks still to come."""
        return [index for index, held in enumerate(self._have) if not held]

    def saved_list(self, reference: BlobReference) -> tuple[ChunkList, bytes] | None:
        """The chunk list kept from an earlier start and its bytes, unless damaged or another."""
        if not self._list_path.is_file():
            return None
        try:
            encoded = read_file(self._list_path, cap_bytes=CHUNK_LIST_CAP_BYTES)
            return read_chunk_list(encoded, reference), encoded
        except (WireError, StorageError):
            return None

    def open(self, chunk_list: ChunkList, encoded_list: bytes) -> None:
        """Begin, or go on where the disk still agrees with the chunk list.

        Raises:
            StorageError: the disk refused.
        """
        if not self._list_path.is_file() or read_file(self._list_path) != encoded_list:
            self.discard()
            write_file(self._list_path, encoded_list, files=self._files)
        self._chunk_bytes = chunk_list.chunk_bytes
        self._have = [False] * len(chunk_list.digests)
        with storage_errors("open", self.data_path):
            self._descriptor = self._files.open_part(self.data_path)
        for index in self._claimed(len(self._have)):
            self._have[index] = sha256_hex(self._read(index)) == chunk_list.digests[index]

    def write(self, index: int, chunk: bytes) -> None:
        """Keep one verified chunk.

        Raises:
            StorageError: the disk refused; the chunk stays missing.
        """
        if self._descriptor is None:
            raise RuntimeError("the part is not open")
        with storage_errors("write", self.data_path):
            self._files.write_at(self._descriptor, chunk, index * self._chunk_bytes)
        self._have[index] = True
        self._unsynced += 1
        if self._unsynced >= SYNC_EVERY_CHUNKS:
            self.sync()

    def sync(self) -> None:
        """Bring what was written to the disk, then the bitmap.

        Raises:
            StorageError: the disk refused; the bitmap on disk still holds.
        """
        if self._descriptor is None or not self._unsynced:
            return
        with storage_errors("sync", self.data_path):
            self._files.sync(self._descriptor)
        write_file(self._bits_path, bytes(self._have), files=self._files)
        self._unsynced = 0

    def close(self) -> None:
        """Close the file; it can be opened again later."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def move_to(self, target: Path) -> None:
        """Put the complete file in its place and forget the rest.

        Raises:
            StorageError: the disk refused.
        """
        with storage_errors("move", self.data_path):
            self._files.rename(self.data_path, target)
            self._files.sync_directory(target.parent)
        self.discard()

    def discard(self) -> None:
        """Remove all traces.

        Raises:
            StorageError: the disk refused.
        """
        self.close()
        for path in (self._bits_path, self._list_path, self.data_path):
            remove_file(path, files=self._files)

    def _claimed(self, count: int) -> list[int]:
        if not self._bits_path.is_file():
            return []
        bits = read_file(self._bits_path)
        return [index for index in range(min(count, len(bits))) if bits[index] == 1]

    def _read(self, index: int) -> bytes:
        assert self._descriptor is not None
        with storage_errors("read", self.data_path):
            return os.pread(self._descriptor, self._chunk_bytes, index * self._chunk_bytes)
