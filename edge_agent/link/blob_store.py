"""Blobs by their digest in a folder, and those still being fetched."""

import hashlib
from pathlib import Path

import structlog

from edge_agent.errors import StorageError
from edge_agent.link.durable import (
    DISK,
    FileOperations,
    make_directory,
    read_file,
    remove_file,
    sweep_temporaries,
    write_file,
)
from edge_agent.link.part_file import PartFile
from edge_agent.wire.blobs import BlobReference, ChunkList, sha256_hex
from edge_agent.wire.topics import is_digest

PARTS_KEPT = 4
_HASH_BLOCK_BYTES = 1024 * 1024

_log = structlog.get_logger(__name__)


class BlobStore:
    """Whole blobs, written once and fsynced; parts in a folder beside them.

    Args:
        directory: made if absent; what a crash left half-written is removed.

    Raises:
        StorageError: the folder cannot be made or read.
    """

    def __init__(self, directory: Path, *, files: FileOperations = DISK) -> None:
        self._directory = directory
        self._parts = directory / "parts"
        self._files = files
        make_directory(self._parts)
        sweep_temporaries(directory)
        sweep_temporaries(self._parts)
        self._forget_finished_parts()

    @property
    def total_bytes(self) -> int:
        """Bytes of all whole blobs."""
        return sum(path.stat().st_size for path in self._directory.iterdir() if is_digest(path.name))

    def path(self, digest: str) -> Path | None:
        """Where a whole blob is, if it is held."""
        path = self._file(digest)
        return path if path.is_file() else None

    def sound(self, digest: str) -> Path | None:
        """Where a whole blob is, if its bytes are still its own; one that the disk damaged is removed.

        Raises:
            StorageError: the disk refused.
        """
        path = self.path(digest)
        if path is None or _file_digest(path) == digest:
            return path
        _log.error("blob-damaged", digest=digest, hint="it is fetched again")
        self.remove(digest)
        return None

    def put(self, data: bytes) -> str:
        """Hold ``data``; returns its digest. Putting the same bytes again is free."""
        digest = sha256_hex(data)
        path = self._file(digest)
        if not path.is_file():
            write_file(path, data, files=self._files)
        return digest

    def read(self, digest: str) -> bytes:
        """The bytes of a blob, verified.

        Raises:
            StorageError: absent, or the disk changed them; then the blob is removed, to be fetched again.
        """
        data = read_file(self._file(digest))
        if sha256_hex(data) != digest:
            self.remove(digest)
            raise StorageError(f"blob {digest} was damaged on disk and has been removed", "it is fetched again")
        return data

    def remove(self, digest: str) -> bool:
        """Forget a blob and its part; returns whether the whole blob was held."""
        whole = self._file(digest)
        self._part(digest).discard()
        return remove_file(whole)

    def digests(self) -> list[str]:
        """All whole blobs."""
        return sorted(path.name for path in self._directory.iterdir() if is_digest(path.name))

    def known_chunk_list(self, reference: BlobReference) -> tuple[ChunkList, bytes] | None:
        """The chunk list that an interrupted fetch left and its bytes, if still good."""
        return self._part(reference.digest).saved_list(reference)

    def begin(self, reference: BlobReference, chunk_list: ChunkList, encoded_list: bytes) -> PartFile:
        """Begin or resume a fetch; the oldest other parts beyond a few are removed.

        Raises:
            StorageError: the disk refused.
        """
        self._remove_old_parts(reference.digest)
        part = self._part(reference.digest)
        part.open(chunk_list, encoded_list)
        return part

    def finish(self, part: PartFile) -> Path | None:
        """Turn a complete part into a blob; ``None``, and the part is gone, if its digest is not the blob's.

        Raises:
            StorageError: the disk refused.
        """
        part.sync()
        if _file_digest(part.data_path) != part.digest:
            part.discard()
            return None
        target = self._file(part.digest)
        part.move_to(target)
        return target

    def _part(self, digest: str) -> PartFile:
        return PartFile(self._parts, digest, files=self._files)

    def _forget_finished_parts(self) -> None:
        """A crash between the last step of a fetch and the end of its tidying leaves a part of a whole blob."""
        for digest in {path.name.partition(".")[0] for path in self._parts.iterdir()}:
            if is_digest(digest) and self.path(digest) is not None:
                self._part(digest).discard()

    def _remove_old_parts(self, wanted: str) -> None:
        newest: dict[str, float] = {}
        for path in self._parts.iterdir():
            digest = path.name.partition(".")[0]
            if is_digest(digest) and digest != wanted:
                newest[digest] = max(newest.get(digest, 0.0), path.stat().st_mtime)
        for digest in sorted(newest, key=newest.__getitem__, reverse=True)[PARTS_KEPT - 1 :]:
            self._part(digest).discard()

    def _file(self, digest: str) -> Path:
        if not is_digest(digest):
            raise StorageError(f"{digest!r} is no SHA-256")
        return self._directory / digest


def _file_digest(path: Path) -> str:
    hasher = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(_HASH_BLOCK_BYTES):
                hasher.update(block)
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
    return hasher.hexdigest()
