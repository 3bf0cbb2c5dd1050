"""An inbox bounded in messages and in bytes: two thousand messages of half a megabyte would be a gigabyte."""

import queue

from edge_agent.link.events import Received, SessionEvent

MAX_BYTES = 16 * 1024 * 1024


class EventQueue(queue.Queue[SessionEvent]):
    """A queue that is full at a number of events, or once their payloads have reached a number of bytes.

    Args:
        max_events: as ``maxsize``.
        max_bytes: one payload may go over it, whatever its size.
    """

    def __init__(self, max_events: int, max_bytes: int = MAX_BYTES) -> None:
        super().__init__(max_events)
        self.held_bytes = 0
        self._max_bytes = max_bytes

    def _qsize(self) -> int:
        """What ``put`` compares with ``maxsize``, and ``get`` with 0."""
        count = super()._qsize()
        return max(count, self.maxsize) if self.held_bytes >= self._max_bytes else count

    def _put(self, item: SessionEvent) -> None:
        super()._put(item)
        self.held_bytes += _size_bytes(item)

    def _get(self) -> SessionEvent:
        item = super()._get()
        self.held_bytes -= _size_bytes(item)
        return item


def _size_bytes(event: SessionEvent) -> int:
    return len(event.payload) + len(event.topic) if isinstance(event, Received) else 0
