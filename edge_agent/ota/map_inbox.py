"""Release maps on their way to the updater's thread."""

import threading
import time
from collections import deque

MAPS_KEPT = 16


class MapInbox:
    """A bounded queue of map payloads that work can watch: what arrives interrupts it.

    Every map is examined, so that every bad one is reported; the oldest give way.
    """

    def __init__(self) -> None:
        self._payloads: deque[bytes] = deque(maxlen=MAPS_KEPT)
        self._closed = False
        self._changed = threading.Condition()

    def put(self, payload: bytes) -> None:
        """Add a map; one that waits already is not added twice."""
        with self._changed:
            if payload not in self._payloads:
                self._payloads.append(payload)
                self._changed.notify_all()

    def take(self) -> bytes | None:
        """The oldest map, if any."""
        with self._changed:
            return self._payloads.popleft() if self._payloads else None

    def close(self) -> None:
        """Interrupt everything for good."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    @property
    def closed(self) -> bool:
        """Whether the updater is to end."""
        return self._closed

    def interrupted(self) -> bool:
        """Whether a map waits or the updater is to end."""
        return self._closed or bool(self._payloads)

    def wait(self, timeout_s: float) -> bool:
        """Wait until interrupted; returns whether it was, before the time was over."""
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            return self._changed.wait_for(self.interrupted, max(0.0, deadline_s - time.monotonic()))
