"""When a copy of the store is made: at the start, every so often, and soon after what must not be lost."""

import time
from collections.abc import Callable

import structlog

from edge_agent.errors import StorageError
from server_bridge.errors import StoreDamaged, StoreRemoved
from server_bridge.store.copies import StoreCopies

LOOK_S = 2.0
SETTLE_S = 2.0
"""A release is followed by the record of its adaptation's end."""
START_PAUSE_S = 60.0
"""A bridge that is started again and again does not copy at each start."""
RETRY_S = 60.0

_log = structlog.get_logger(__name__)


class StoreCopier:
    """One step looks whether a copy is due, and makes it; on a thread of its own.

    Args:
        copies: where copies go.
        interval_s: the longest between two copies.
        occasion: a value whose change makes a copy due at once (the latest release, who is registered).
        on_copied: told of each copy.
        pause: waits up to so many seconds.
        monotonic: seconds, never going back.
        wall: seconds since 1970; the clock of the files' times.
    """

    def __init__(
        self,
        copies: StoreCopies,
        interval_s: float,
        *,
        occasion: Callable[[], object],
        on_copied: Callable[[], None],
        pause: Callable[[float], object],
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._copies = copies
        self._interval_s = interval_s
        self._occasion = occasion
        self._on_copied = on_copied
        self._pause = pause
        self._monotonic = monotonic
        self._last = occasion()
        newest = next(iter(copies.all()), None)
        young = newest is not None and abs(wall() - newest.made_s) < START_PAUSE_S
        self._due_s = monotonic() + (min(interval_s, START_PAUSE_S) if young else 0.0)

    def step(self) -> None:
        """Look, copy if it is time, rest a moment. A disk that refuses is tried again later.

        Raises:
            StoreDamaged: the copy shows that the store is.
            StoreRemoved: it is gone.
        """
        seen = self._occasion()
        if seen != self._last:
            self._last = seen
            self._due_s = min(self._due_s, self._monotonic() + SETTLE_S)
        if self._monotonic() >= self._due_s:
            self._copy()
        self._pause(LOOK_S)

    def _copy(self) -> None:
        began_s = self._monotonic()
        try:
            copy = self._copies.take()
            self._on_copied()
        except (StoreDamaged, StoreRemoved):
            raise
        except StorageError as error:
            self._due_s = self._monotonic() + min(self._interval_s, RETRY_S)
            _log.warning("store-not-copied", problem=error.problem, hint=error.hint)
            return
        now_s = self._monotonic()
        self._due_s = now_s + self._interval_s
        _log.info("store-copied", copy=str(copy.path), size_bytes=copy.size_bytes, took_s=round(now_s - began_s, 3))
