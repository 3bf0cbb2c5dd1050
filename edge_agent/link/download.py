"""Fetching blobs: retained chunks, verified one by one, resumed after any interruption."""

import queue
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from edge_agent.errors import TransientError
from edge_agent.link.blob_store import BlobStore
from edge_agent.link.chunk_feed import ChunkFeed, FeedLine
from edge_agent.link.events import Received
from edge_agent.link.patience import RETRIES, Patience
from edge_agent.link.settings import BrokerSettings
from edge_agent.wire.blobs import BlobReference, ChunkList, check_chunk, read_chunk_list
from edge_agent.wire.errors import WireError
from edge_agent.wire.topics import FleetTopics

SILENCE_S = 10.0
POLL_S = 0.1
MAX_BLOB_BYTES = 256 * 1024 * 1024

_log = structlog.get_logger(__name__)


class BlobUnavailable(TransientError):
    """A blob could not be fetched.

    Args:
        reason: ``silent`` and ``withdrawn`` (tell the bridge), ``timeout``, ``cancelled``, ``damaged``, ``too-large``.
    """

    def __init__(self, reason: str, reference: BlobReference, detail: str) -> None:
        self.reason = reason
        self.reference = reference
        super().__init__(f"blob {reference.digest} ({reference.length} bytes): {reason}: {detail}")


@dataclass(frozen=True, slots=True)
class _Limits:
    reference: BlobReference
    deadline_s: float
    cancelled: Callable[[], bool]

    def check(self) -> None:
        if self.cancelled():
            raise BlobUnavailable("cancelled", self.reference, "no longer wanted")
        if time.monotonic() > self.deadline_s:
            raise BlobUnavailable("timeout", self.reference, "not complete in time; it will go on from here")


class Downloader:
    """Fetches blobs into a store through a client of its own. Usable from any thread.

    Args:
        client_id: of the transfer client, which is connected while a fetch runs.
        window: chunk topics subscribed at a time, over all fetches.
        silence_s: the least time without any chunk after which the open ones are asked for again.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        client_id: str,
        topics: FleetTopics,
        store: BlobStore,
        *,
        window: int = 8,
        silence_s: float = SILENCE_S,
    ) -> None:
        self.corrupt_chunks = 0
        self._topics = topics
        self._store = store
        self._window = window
        self._silence_s = silence_s
        self._feed = ChunkFeed(settings, client_id, window=window)
        self._rng = random.Random()
        self._fetching: set[str] = set()
        self._turn = threading.Condition()

    def fetch(
        self, reference: BlobReference, *, timeout_s: float, cancelled: Callable[[], bool] = lambda: False
    ) -> Path:
        """The blob's file in the store, whole and verified; what came before an interruption is kept.

        Raises:
            BlobUnavailable: it cannot be had now; its ``reason`` says why.
            StorageError: the disk refused.
        """
        limits = _Limits(reference, time.monotonic() + timeout_s, cancelled)
        if reference.length > MAX_BLOB_BYTES:
            raise BlobUnavailable("too-large", reference, f"the cap is {MAX_BLOB_BYTES} bytes")
        with self._only_one_of(limits):
            held = self._store.sound(reference.digest)
            if held is None and reference.length == 0:
                held = self._store.path(self._store.put(b""))
            if held is None:
                with self._feed.line() as line:
                    held = self._fetch_parts(line, limits)
            if held is None or held.name != reference.digest:
                raise BlobUnavailable("damaged", reference, "the chunks are right and the whole is not")
            return held

    @contextmanager
    def _only_one_of(self, limits: _Limits) -> Iterator[None]:
        digest = limits.reference.digest
        with self._turn:
            while digest in self._fetching:
                limits.check()
                self._turn.wait(POLL_S)
            self._fetching.add(digest)
        try:
            yield
        finally:
            with self._turn:
                self._fetching.discard(digest)
                self._turn.notify_all()

    def _fetch_parts(self, line: FeedLine, limits: _Limits) -> Path | None:
        reference = limits.reference
        chunk_list, encoded = self._chunk_list(line, limits)
        part = self._store.begin(reference, chunk_list, encoded)
        try:

            def take(index: int, chunk: bytes) -> None:
                check_chunk(chunk, index, chunk_list)
                part.write(index, chunk)

            self._gather(line, reference.digest, part.missing, take, limits)
            return self._store.finish(part)
        finally:
            try:
                part.sync()
            finally:
                part.close()

    def _chunk_list(self, line: FeedLine, limits: _Limits) -> tuple[ChunkList, bytes]:
        kept = self._store.known_chunk_list(limits.reference)
        if kept is not None:
            return kept
        found: list[tuple[ChunkList, bytes]] = []

        def take(index: int, chunk: bytes) -> None:
            found.append((read_chunk_list(chunk, limits.reference), chunk))

        self._gather(line, limits.reference.chunk_list, [0], take, limits)
        return found[0]

    def _gather(
        self,
        line: FeedLine,
        digest: str,
        indices: Sequence[int],
        take: Callable[[int, bytes], None],
        limits: _Limits,
    ) -> None:
        """Receive all of ``indices``; ``take`` raises WireError for a chunk that is not right."""
        waiting = deque(indices)
        asked: dict[str, int] = {}
        patience = Patience(self._silence_s, time.monotonic(), self._rng)
        try:
            while waiting or asked:
                limits.check()
                while waiting and len(asked) < max(1, self._window // self._feed.users):
                    index = waiting.popleft()
                    asked[self._topics.chunk(digest, index)] = index
                    line.subscribe(self._topics.chunk(digest, index))
                event = _next(line)
                if isinstance(event, Received) and event.topic in asked:
                    if self._take(event, asked[event.topic], take, limits):
                        patience.arrived(time.monotonic())
                        line.unsubscribe(event.topic)
                        del asked[event.topic]
                elif not line.connected:
                    patience.interrupted(time.monotonic())
                    continue
                patience.progressed(line.heard_s)
                if patience.is_over(time.monotonic()):
                    self._ask_again(line, list(asked), patience, limits)
        finally:
            for topic in asked:
                line.unsubscribe(topic)

    def _take(self, event: Received, index: int, take: Callable[[int, bytes], None], limits: _Limits) -> bool:
        if not event.payload:
            raise BlobUnavailable("withdrawn", limits.reference, f"chunk {index} is empty")
        try:
            take(index, event.payload)
        except WireError as error:
            self.corrupt_chunks += 1
            _log.warning("chunk-corrupt", digest=limits.reference.digest, index=index, problem=error.problem)
            return False
        return True

    def _ask_again(self, line: FeedLine, topics: list[str], patience: Patience, limits: _Limits) -> None:
        if not patience.try_again(time.monotonic()):
            raise BlobUnavailable(
                "silent", limits.reference, f"{len(topics)} chunks did not come, asked {RETRIES + 1}x"
            )
        _log.info("chunks-silent", digest=limits.reference.digest, chunks=len(topics))
        for topic in topics:
            line.ask_again(topic)


def _next(line: FeedLine) -> object:
    try:
        return line.events.get(timeout=POLL_S)
    except queue.Empty:
        return None
