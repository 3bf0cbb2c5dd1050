"""Embeddings of samples on disk, so that an adaptation's next round need not compute them again.

One file: the SHA-256 of the rest; 8 bytes of header length; the header (JSON: key, shape of a row, sample ids); the
rows as little-endian float32. Whatever is wrong with it (absent, damaged, of other weights) means: nothing is cached.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import StorageError
from edge_agent.link.durable import PRIVATE_MODE, read_file, write_file

EMBEDDINGS_FILE = "embeddings.cache"
CACHE_CAP_BYTES = 64 * 1024 * 1024
_DIGEST_BYTES, _LENGTH_BYTES = 32, 8


@dataclass(frozen=True, slots=True)
class CachedRows:
    """Rows by sample.

    Attributes:
        place: sample id to its row.
        rows: (n, ...) float32; None for none.
    """

    place: dict[str, int] = field(default_factory=dict)
    rows: NDArray[np.float32] | None = None


class EmbeddingCache:
    """The cache in a file.

    Args:
        path: the file; None for no cache.
        cap_bytes: the most that it may take; of more rows the last ones are kept.
    """

    def __init__(self, path: Path | None, *, cap_bytes: int = CACHE_CAP_BYTES) -> None:
        self._path = path
        self._cap_bytes = cap_bytes

    def read(self, key: str, shape: Sequence[int]) -> CachedRows:
        """What is cached for a key.

        Args:
            key: names all that a row depends on but its sample.
            shape: of one row.
        """
        if self._path is None or not self._path.exists():
            return CachedRows()
        try:
            return _decoded(read_file(self._path, cap_bytes=self._cap_bytes), key, list(shape)) or CachedRows()
        except StorageError:
            return CachedRows()  # it is computed and written again

    def write(self, key: str, ids: Sequence[str], rows: NDArray[np.float32]) -> None:
        """Keep rows in place of what was there, atomically.

        Args:
            ids: the samples', the newest last.
            rows: (len(ids), ...) float32.

        Raises:
            StorageError: the disk refused; what was there is untouched.
        """
        if self._path is None or len(ids) == 0:
            return
        kept = min(len(ids), self._cap_bytes // max(1, rows[0].nbytes))
        while kept > 0:
            payload = _encoded(key, ids[len(ids) - kept :], rows[len(ids) - kept :])
            if len(payload) <= self._cap_bytes:
                write_file(self._path, payload, mode=PRIVATE_MODE)
                return
            kept //= 2  # long ids; rare, and a smaller cache is no fault


def _encoded(key: str, ids: Sequence[str], rows: NDArray[np.float32]) -> bytes:
    header = json.dumps({"key": key, "shape": list(rows.shape[1:]), "ids": list(ids)}).encode()
    payload = len(header).to_bytes(_LENGTH_BYTES, "little") + header + np.ascontiguousarray(rows, "<f4").tobytes()
    return sha256(payload).digest() + payload


def _decoded(data: bytes, key: str, shape: list[int]) -> CachedRows | None:
    """The rows, if the file is whole and of this key."""
    payload = memoryview(data)[_DIGEST_BYTES:]
    if len(payload) < _LENGTH_BYTES or sha256(payload).digest() != data[:_DIGEST_BYTES]:
        return None
    begin = _LENGTH_BYTES + int.from_bytes(payload[:_LENGTH_BYTES], "little")
    try:
        header: Any = json.loads(bytes(payload[_LENGTH_BYTES:begin]))
        ids: Any = header["ids"]
        if header["key"] != key or header["shape"] != shape or not isinstance(ids, list):
            return None
        rows = np.frombuffer(payload[begin:], "<f4").reshape(len(ids), *shape)
    except (ValueError, KeyError, TypeError, RecursionError):  # whole, but written by another version
        return None
    fit = np.isfinite(rows.reshape(len(ids), -1)).all(axis=1).tolist()
    return CachedRows({name: row for row, name in enumerate(ids) if fit[row]}, rows)
