"""From the network thread to the caller's bounded inbox, with back-pressure on the broker."""

import queue
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from edge_agent.link.events import Received, SessionEvent


@dataclass(frozen=True, slots=True)
class _Pending:
    event: SessionEvent
    delivered: Callable[[], None]


class Intake:
    """Events that wait for room in the inbox, in order. Used by the network thread only.

    The rule when the inbox is full: messages wait here, unacknowledged, so that the broker keeps
    to the Receive Maximum. mosquitto 2.0.11 overruns it by far in a burst (measured), so at
    ``max_messages`` (:attr:`saturated`) the thread stops reading the socket altogether.
    """

    def __init__(self, inbox: "queue.Queue[SessionEvent]", *, max_messages: int) -> None:
        self.messages = 0
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
        return self.messages >= self._max_messages

    def put(self, event: SessionEvent, delivered: Callable[[], None] = lambda: None) -> None:
        """Queue one event; ``delivered`` runs once it is in the inbox."""
        self.messages += isinstance(event, Received)
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
            self.messages -= isinstance(first.event, Received)
            first.delivered()

    def forget_messages(self) -> int:
        """Drop the messages still waiting, after a lost connection; a persistent session brings them again."""
        self._pending = deque(one for one in self._pending if not isinstance(one.event, Received))
        forgotten, self.messages = self.messages, 0
        return forgotten
