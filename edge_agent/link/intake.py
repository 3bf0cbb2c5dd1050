"""From the network thread to the caller's bounded inbox, with back-pressure on the broker."""

import queue
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from edge_agent.link.events import Received, SessionEvent

MAX_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class _Pending:
    event: SessionEvent
    delivered: Callable[[], None]


class Intake:
    """Events that wait for room in the inbox, in order. Used by the network thread only.

    The rule when the inbox is full: messages wait here, unacknowledged, so that the broker keeps
    to the Receive Maximum. mosquitto 2.0.11 overruns it by far in a burst (measured), so at
    ``max_messages`` or ``MAX_BYTES`` (:attr:`saturated`) the thread stops reading the socket.
    """

    def __init__(self, inbox: "queue.Queue[SessionEvent]", *, max_messages: int) -> None:
        self.messages = 0
        self._bytes = 0
        self._inbox = inbox
        self._max_messages = max_messages
        self._pending: deque[_Pending] = deque()

    @property
    def blocked(self) -> bool:
        """Whether something waits for room."""
        return bool(self._pending)

    @property
    def saturated(self) -> bool:
        """Whether no further message should be read."""
        return self.messages >= self._max_messages or self._bytes >= MAX_BYTES

    def put(self, event: SessionEvent, delivered: Callable[[], None] = lambda: None) -> None:
        """Queue one event; ``delivered`` runs once it is in the inbox."""
        self._count(event, 1)
        self._pending.append(_Pending(event, delivered))

    def flush(self) -> None:
        """Move what fits into the inbox."""
        while self._pending:
            first = self._pending[0]
            try:
                self._inbox.put_nowait(first.event)
            except queue.Full:
                return
            self._pending.popleft()
            self._count(first.event, -1)
            first.delivered()

    def forget_messages(self) -> int:
        """Drop the messages still waiting, after a lost connection; a persistent session brings them again."""
        self._pending = deque(one for one in self._pending if not isinstance(one.event, Received))
        forgotten, self.messages, self._bytes = self.messages, 0, 0
        return forgotten

    def _count(self, event: SessionEvent, step: int) -> None:
        if isinstance(event, Received):
            self.messages += step
            self._bytes += step * len(event.payload)
