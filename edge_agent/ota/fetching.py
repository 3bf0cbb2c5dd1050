"""Blobs for the updater: asked for until they come, or something newer does."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import structlog

from edge_agent.errors import RejectedUpdate, TransientError
from edge_agent.link.download import BlobUnavailable
from edge_agent.link.durable import read_file
from edge_agent.ota.map_inbox import MapInbox
from edge_agent.wire.blobs import BlobReference, sha256_hex
from edge_agent.wire.messages.event import BlobMissingEvent, EventBody

FETCH_TIMEOUT_S = 600.0
BACKOFF_FIRST_S = 1.0
BACKOFF_CAP_S = 120.0
_TOLD = ("silent", "withdrawn")

_log = structlog.get_logger(__name__)


class Superseded(Exception):
    """A newer map waits, or the updater is to end: the work in hand is put down."""


class BlobSource(Protocol):
    """Where blobs come from; ``edge_agent.link.download.Downloader`` is one."""

    def fetch(self, reference: BlobReference, *, timeout_s: float, cancelled: Callable[[], bool]) -> Path:
        """The verified blob's file; raises ``TransientError`` on silence or when cancelled."""
        ...


def backoff_s(attempt: int, rng: random.Random, *, first_s: float = BACKOFF_FIRST_S) -> float:
    """Full jitter: anything up to a bound that doubles with each attempt."""
    return rng.uniform(0.0, min(BACKOFF_CAP_S, first_s * 2.0 ** min(attempt, 16)))


class BlobFetcher:
    """Fetches with patience.

    Args:
        report: puts an event into the outbox, in a transaction of its own.
    """

    def __init__(
        self, source: BlobSource, inbox: MapInbox, report: Callable[[EventBody], None], rng: random.Random
    ) -> None:
        self._source = source
        self._inbox = inbox
        self._report = report
        self._rng = rng

    def fetch(self, reference: BlobReference, *, cap_bytes: int) -> bytes:
        """The blob's bytes, digest checked.

        Raises:
            Superseded: a newer map came, or the updater is to end.
            RejectedUpdate: ``too_large``: it is announced larger than the cap.
            StorageError: the disk refused.
        """
        if reference.length > cap_bytes:
            raise RejectedUpdate("too_large", f"blob {reference.digest} has {reference.length} bytes, cap {cap_bytes}")
        attempt = 0
        while True:
            try:
                data = self._try(reference)
                if sha256_hex(data) == reference.digest:
                    return data
                raise TransientError(f"the file of blob {reference.digest} is damaged")
            except TransientError as error:
                self._interruptible()
                _log.info("blob-silent", digest=reference.digest, attempt=attempt, problem=str(error))
                if not isinstance(error, BlobUnavailable) or error.reason in _TOLD:
                    self._report(BlobMissingEvent(blob=reference))
            self._inbox.wait(backoff_s(attempt, self._rng))
            self._interruptible()
            attempt += 1

    def _try(self, reference: BlobReference) -> bytes:
        path = self._source.fetch(reference, timeout_s=FETCH_TIMEOUT_S, cancelled=self._inbox.interrupted)
        return read_file(path)

    def _interruptible(self) -> None:
        if self._inbox.interrupted():
            raise Superseded
