"""Blobs as retained chunks: published, read back, published again, cleared."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence, Set

import structlog

from edge_agent.errors import StorageError, TransientError
from edge_agent.wire.blobs import BlobReference, ChunkList, chunks, make_chunk_list, sha256_hex
from edge_agent.wire.codec import encode
from edge_agent.wire.topics import FleetTopics
from server_bridge.releases.broker_copies import BrokerCopies
from server_bridge.releases.ledger import RetainedLedger
from server_bridge.releases.readback import ReadBack
from server_bridge.releases.retained_line import RetainedLine
from server_bridge.store.blobs import BlobFolder

PUBLISH_TIMEOUT_S = 60.0
RETIRE_AFTER_S = 24 * 3600.0
RECENT_S = 3600.0
"""A blob published this lately may be the base of a round under way."""
BUDGET_BYTES = 256 * 1024 * 1024

_log = structlog.get_logger(__name__)


class BlobPublisher:
    """Makes blobs available under ``all/blob``; any thread may call.

    Args:
        copies: where a blob is had again that the disk has damaged or lost.
        blobs: holds every blob's bytes for good.
        budget_bytes: of retained chunks; beyond, unused blobs are cleared early.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        line: RetainedLine,
        readback: ReadBack,
        copies: BrokerCopies,
        topics: FleetTopics,
        blobs: BlobFolder,
        ledger: RetainedLedger,
        *,
        budget_bytes: int = BUDGET_BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._line = line
        self._readback = readback
        self._copies = copies
        self._topics = topics
        self._blobs = blobs
        self._ledger = ledger
        self._budget_bytes = budget_bytes
        self._clock = clock
        self._lock = threading.RLock()
        self._confirmed: set[str] = set()
        self._needed: Set[str] = frozenset()

    def publish(self, data: bytes) -> BlobReference:
        """Publish a blob's chunks, retained, and read them back; the same bytes again are free.

        Raises:
            TransientError: the broker is away, refuses, or does not give them back.
            StorageError: the disk refused.
        """
        return self.publish_all([data])[0]

    def publish_all(self, contents: Sequence[bytes]) -> list[BlobReference]:
        """Publish several blobs in order, with one read-back for all.

        Raises:
            TransientError, StorageError: as :meth:`publish`.
        """
        made = [(self._blobs.put(data), data) for data in contents]
        lists = {digest: make_chunk_list(data) for digest, data in made}
        references = [_reference(digest, lists[digest]) for digest, _ in made]
        with self._lock:
            fresh = [one for one in references if one.digest not in self._confirmed]
            self._send({one.digest: one for one in fresh}.values())
            self._confirm(fresh)
        return references

    def ensure(self, references: Sequence[BlobReference]) -> int:
        """Publish those that the broker does not hold whole; returns how many that were.

        Raises:
            TransientError, StorageError: as :meth:`publish`.
        """
        with self._lock:
            doubtful = [one for one in references if one.digest not in self._confirmed]
            missing = self._missing(doubtful)
            self._ledger.use(doubtful, self._clock())
            self._send(missing)
            self._confirmed |= {one.digest for one in doubtful} - {one.digest for one in missing}
            self._confirm(missing)
            return len(missing)

    def recent(self) -> list[BlobReference]:
        """Blobs that rounds under way may need, the latest first."""
        return self._ledger.used_since(self._clock() - RECENT_S)

    @property
    def retained(self) -> set[str]:
        """Digests of every blob that the broker holds for us; each can be published again at any time."""
        return self._ledger.digests

    def find(self, digest: str) -> BlobReference | None:
        """The reference of a blob of ours that the broker should hold."""
        return self._ledger.find(digest)

    def doubt(self, digests: Iterable[str] | None = None) -> None:
        """Believe no longer that the broker holds these (all): after a reconnect, or when a gateway misses one."""
        with self._lock:
            self._confirmed = set() if digests is None else self._confirmed - set(digests)

    def keep(self, digests: Set[str]) -> None:
        """Never clear these, however old: the releases in force need them. Those before begin to age now."""
        with self._lock:
            former = [one for digest in self._needed - digests if (one := self._ledger.find(digest)) is not None]
            self._needed = frozenset(digests)
            self._ledger.use(former, self._clock())

    def retire(self, references: Sequence[BlobReference]) -> None:
        """Clear blobs from the broker; their bytes stay in the folder.

        Raises:
            TransientError, StorageError: as :meth:`publish`.
        """
        with self._lock:
            for one in references:
                count = len(make_chunk_list(self._bytes(one)).digests)
                topics = [self._topics.chunk(one.digest, index) for index in range(count)]
                cleared = [(topic, b"") for topic in (*topics, self._topics.chunk(one.chunk_list, 0))]
                self._line.publish(cleared, timeout_s=PUBLISH_TIMEOUT_S)
                self._ledger.strike({one.digest})
                self._confirmed.discard(one.digest)
                _log.info("blob-retired", digest=one.digest, size_bytes=one.length)

    def retire_unused(self) -> int:
        """Clear what no release in force needs and nobody has used for a day; returns how many."""
        with self._lock:
            idle = self._ledger.unused(self._needed, self._clock() - RETIRE_AFTER_S)
            self.retire(idle)
            return len(idle)

    def _send(self, references: Iterable[BlobReference]) -> None:
        wanted = list(references)
        if not wanted:
            return
        new_bytes = sum(one.length for one in wanted if self._ledger.find(one.digest) is None)
        self._make_room(new_bytes, {one.digest for one in wanted})
        self._ledger.use(wanted, self._clock())
        for one in wanted:
            self._line.publish(self._messages(one), timeout_s=PUBLISH_TIMEOUT_S)

    def _confirm(self, references: Sequence[BlobReference]) -> None:
        missing = self._missing(references)
        self._confirmed |= {one.digest for one in references} - {one.digest for one in missing}
        if missing:
            raise TransientError(
                f"the broker does not give blob {missing[0].digest} back", "check its limits and rights"
            )

    def _missing(self, references: Sequence[BlobReference]) -> list[BlobReference]:
        expected: dict[str, list[str]] = {}
        for one in references:
            expected[one.chunk_list] = [one.chunk_list]
            expected[one.digest] = list(make_chunk_list(self._bytes(one)).digests)
        absent = self._readback.absent(expected)
        return [one for one in references if one.digest in absent or one.chunk_list in absent]

    def _bytes(self, reference: BlobReference) -> bytes:
        try:
            return self._blobs.read(reference.digest)
        except StorageError as error:
            data = self._copies.fetch(reference)
            if data is None:
                raise
            self._blobs.restore(data)
            _log.warning("blob-restored", digest=reference.digest, problem=error.problem, source="broker")
            return data

    def _messages(self, reference: BlobReference) -> list[tuple[str, bytes]]:
        data = self._bytes(reference)
        chunk_list = make_chunk_list(data)
        messages = [
            (self._topics.chunk(reference.digest, index), chunk)
            for index, chunk in enumerate(chunks(data, chunk_list.chunk_bytes))
        ]
        return [*messages, (self._topics.chunk(reference.chunk_list, 0), encode(chunk_list))]

    def _make_room(self, more_bytes: int, wanted: Set[str]) -> None:
        excess = self._ledger.total_bytes + more_bytes - self._budget_bytes
        if excess <= 0:
            return
        for one in self._ledger.unused(self._needed | wanted, self._clock()):
            if excess <= 0:
                return
            self.retire([one])
            excess -= one.length
        if excess > 0:
            raise TransientError(
                f"retained blobs would exceed the budget by {excess} bytes", "raise [release] retained_budget_bytes"
            )


def _reference(digest: str, chunk_list: ChunkList) -> BlobReference:
    return BlobReference(digest=digest, length=chunk_list.length, chunk_list=sha256_hex(encode(chunk_list)))
