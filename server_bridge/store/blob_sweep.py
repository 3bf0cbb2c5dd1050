"""What the blob folder need not keep: the base weights of rounds past, and what a killed bridge left behind."""

import time
from collections.abc import Callable, Set

import structlog

from edge_agent.errors import StorageError
from server_bridge.store.store import Store

SWEEP_EVERY_S = 600.0
YOUNG_S = 3600.0

_log = structlog.get_logger(__name__)


class BlobSweep:
    """Removes blobs that nothing names, an hour after they were put.

    Named are: what the running adaptation needs, what the last of each bundle left for the next, and what
    ``kept`` says (the broker's retained blobs, which leave it after a day or when the retained budget is
    spent, and the releases on record). So the folder is bounded by the retained budget, the releases on
    record, one adaptation and an hour.

    Args:
        kept: digests that are needed for other reasons.
        wall: seconds since 1970; the clock of the files' times.
    """

    def __init__(
        self,
        store: Store,
        kept: Callable[[], Set[str]],
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._kept = kept
        self._monotonic = monotonic
        self._wall = wall
        self._due_s = monotonic()

    def step(self) -> None:
        """Sweep if it is time; on the thread that runs adaptations. A disk that refuses is tried again later."""
        if self._monotonic() < self._due_s:
            return
        self._due_s = self._monotonic() + SWEEP_EVERY_S
        try:
            self.sweep()
        except StorageError as error:
            _log.warning("blobs-not-swept", problem=error.problem)

    def sweep(self) -> int:
        """Remove what nothing names; returns how many.

        Raises:
            StorageError: the disk or the database refuses.
        """
        old = set(self._store.blobs.older_than(self._wall() - YOUNG_S))
        unnamed = old - self._kept() - self._adapting() - set(self._store.adaptations.memories().values())
        for digest in sorted(unnamed):
            self._store.blobs.remove(digest)
        if unnamed:
            _log.info("blobs-swept", removed=len(unnamed))
        return len(unnamed)

    def _adapting(self) -> set[str]:
        running = self._store.adaptations.running()
        if running is None:
            return set()
        rounds = self._store.adaptations.rounds(running.id)
        named = {running.state or "", *running.base.values()}
        named |= {digest for record in rounds for digest in record.weights.values()}
        return named | set(self._store.commands.update_digests(f"{running.id}-"))
