"""Which blobs the broker holds for us: written down before they are published, so that none is forgotten."""

import threading
from collections.abc import Set
from pathlib import Path

from edge_agent.errors import StorageError
from edge_agent.link.durable import read_file, write_file
from edge_agent.wire.blobs import BlobReference
from edge_agent.wire.codec import Digest, Finite, Message, WireModel, decode, encode
from edge_agent.wire.errors import WireError

LEDGER_CAP_BYTES = 64 * 1024 * 1024


class Entry(WireModel):
    """A published blob and when it was last asked for by a publication."""

    blob: BlobReference
    used_s: Finite


class _File(Message):
    entries: dict[Digest, Entry]


class RetainedLedger:
    """The account of retained blobs, in one file.

    Raises:
        StorageError: the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._entries = self._read()

    @property
    def total_bytes(self) -> int:
        """Bytes of all blobs that the broker holds for us."""
        with self._lock:
            return sum(entry.blob.length for entry in self._entries.values())

    def find(self, digest: str) -> BlobReference | None:
        """The reference of a blob that was published."""
        with self._lock:
            entry = self._entries.get(digest)
            return entry.blob if entry else None

    def use(self, blobs: list[BlobReference], now_s: float) -> None:
        """Write down that these are about to be published.

        Raises:
            StorageError: the disk refused.
        """
        with self._lock:
            entries = self._entries | {blob.digest: Entry(blob=blob, used_s=now_s) for blob in blobs}
            self._write(entries)

    def strike(self, digests: Set[str]) -> None:
        """These are cleared from the broker.

        Raises:
            StorageError: the disk refused.
        """
        with self._lock:
            self._write({digest: entry for digest, entry in self._entries.items() if digest not in digests})

    def unused(self, kept: Set[str], before_s: float) -> list[BlobReference]:
        """Blobs outside ``kept`` not used since, the longest unused first."""
        with self._lock:
            idle = [entry for digest, entry in self._entries.items() if digest not in kept and entry.used_s <= before_s]
        return [entry.blob for entry in sorted(idle, key=lambda entry: entry.used_s)]

    def used_since(self, since_s: float) -> list[BlobReference]:
        """Blobs used since, the latest first."""
        with self._lock:
            recent = [entry for entry in self._entries.values() if entry.used_s > since_s]
        return [entry.blob for entry in sorted(recent, key=lambda entry: entry.used_s, reverse=True)]

    @property
    def digests(self) -> set[str]:
        """Every blob that the broker holds for us."""
        with self._lock:
            return set(self._entries)

    def _write(self, entries: dict[str, Entry]) -> None:
        write_file(self._path, encode(_File(entries=entries)))
        self._entries = entries

    def _read(self) -> dict[str, Entry]:
        if not self._path.is_file():
            return {}
        try:
            return decode(_File, read_file(self._path, cap_bytes=LEDGER_CAP_BYTES), cap_bytes=LEDGER_CAP_BYTES).entries
        except WireError as error:
            raise StorageError(f"{self._path} is damaged: {error}", "restore it from a backup") from None
