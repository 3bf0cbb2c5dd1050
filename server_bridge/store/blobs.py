"""Content-addressed blobs in a folder: base weights, updates, strategy states, release targets."""

import os
from pathlib import Path

from edge_agent.errors import StorageError
from edge_agent.link.durable import (
    make_directory,
    read_file,
    remove_file,
    storage_errors,
    sweep_temporaries,
    write_file,
)
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.topics import is_digest

_FAN_OUT = 2


class BlobFolder:
    """Blobs by the SHA-256 of their bytes; written once, fsynced, verified when read.

    Args:
        directory: made if absent.

    Raises:
        StorageError: it cannot be made.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        make_directory(directory)

    def sweep(self) -> None:
        """Remove what a killed write left; only for the one process that writes here."""
        for folder in self._directory.iterdir():
            sweep_temporaries(folder)

    def put(self, data: bytes) -> str:
        """Keep ``data``; its digest. Putting the same bytes again is free, and makes them young."""
        digest = sha256_hex(data)
        path = self._file(digest)
        if path.is_file():
            with storage_errors("touch", path):
                os.utime(path)
        else:
            make_directory(path.parent)
            write_file(path, data)
        return digest

    def restore(self, data: bytes) -> None:
        """Write a blob over what the disk has made of it."""
        path = self._file(sha256_hex(data))
        make_directory(path.parent)
        write_file(path, data)

    def older_than(self, before_s: float) -> list[str]:
        """Digests of the blobs that were put (last) before that time, seconds since 1970.

        Raises:
            StorageError: the disk refuses.
        """
        with storage_errors("list", self._directory):
            files = [path for folder in self._directory.iterdir() for path in folder.iterdir()]
            return sorted(path.name for path in files if is_digest(path.name) and path.stat().st_mtime < before_s)

    def read(self, digest: str) -> bytes:
        """The bytes of a blob.

        Raises:
            StorageError: it is absent, or its bytes have changed.
        """
        path = self._file(digest)
        data = read_file(path)
        if sha256_hex(data) != digest:
            raise StorageError(f"blob {path} does not have its digest", "restore it from a backup")
        return data

    def path(self, digest: str) -> Path | None:
        """Where a blob is, if it is there."""
        path = self._file(digest)
        return path if path.is_file() else None

    def __contains__(self, digest: object) -> bool:
        return isinstance(digest, str) and self.path(digest) is not None

    def remove(self, digest: str) -> bool:
        """Forget a blob; whether it was there."""
        return remove_file(self._file(digest))

    def _file(self, digest: str) -> Path:
        if not is_digest(digest):
            raise StorageError(f"{digest!r} is no SHA-256")
        return self._directory / digest[:_FAN_OUT] / digest
