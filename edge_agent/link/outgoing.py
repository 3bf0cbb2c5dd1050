"""Publications on their way to the broker: bounded, in order, each settled exactly once."""

import threading
from collections import deque
from dataclasses import dataclass

from edge_agent.errors import TransientError

FRUITLESS_CONNECTIONS = 3


class PayloadTooLarge(TransientError):
    """The payload is over the cap; it would be refused every time, so do not send it again."""


@dataclass(slots=True)
class Publication:
    """One message to publish."""

    token: int
    topic: str
    payload: bytes
    retain: bool
    qos: int
    fruitless: int = 0

    @property
    def packet_bytes(self) -> int:
        """About the packet's size: topic, payload and at most 16 bytes of header."""
        return len(self.topic.encode()) + len(self.payload) + 16


class Outgoing:
    """Waiting and in-flight publications of one session.

    A publication counts against the caps until its outcome has been told, so that a caller who
    never reads outcomes cannot make it grow.
    """

    def __init__(self, *, max_count: int, max_bytes: int) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._room = threading.Condition()
        self._waiting: deque[Publication] = deque()
        self._in_flight: dict[int, Publication] = {}
        self._count = 0
        self._bytes = 0
        self._last_token = 0

    @property
    def idle(self) -> bool:
        """Whether nothing waits or is in flight."""
        with self._room:
            return not self._waiting and not self._in_flight

    def offer(self, topic: str, payload: bytes, *, retain: bool, qos: int, timeout_s: float) -> int:
        """Queue one message; returns its token.

        Raises:
            TransientError: no room within ``timeout_s``.
        """
        size = len(payload)
        with self._room:
            if not self._room.wait_for(lambda: self._has_room(size), timeout_s):
                raise TransientError(f"{self._count} messages already wait for the broker", "try again later")
            self._last_token += 1
            self._count += 1
            self._bytes += size
            self._waiting.append(Publication(self._last_token, topic, payload, retain, qos))
            return self._last_token

    def take(self, window: int) -> Publication | None:
        """The next one to send, unless ``window`` are in flight."""
        with self._room:
            if not self._waiting or len(self._in_flight) >= window:
                return None
            return self._waiting.popleft()

    def sent(self, message_id: int, publication: Publication) -> None:
        """It is in flight under the packet's ``message_id``."""
        with self._room:
            self._in_flight[message_id] = publication

    def answered(self, message_id: int) -> Publication | None:
        """The broker answered; every other one in flight has had its chance too."""
        with self._room:
            for other in self._in_flight.values():
                other.fruitless = 0
            return self._in_flight.pop(message_id, None)

    def connection_lost(self) -> list[Publication]:
        """Put what was in flight back in front; returns those given up.

        A message that the broker cannot take (too large, say) ends every connection: after
        ``FRUITLESS_CONNECTIONS`` in which no message at all was answered, what was in flight is given up.
        """
        with self._room:
            flying, self._in_flight = list(self._in_flight.values()), {}
            for publication in flying:
                publication.fruitless += 1
            poison = [one for one in flying if one.fruitless >= FRUITLESS_CONNECTIONS]
            self._waiting.extendleft(reversed([one for one in flying if one.fruitless < FRUITLESS_CONNECTIONS]))
            return poison

    def told(self, publication: Publication) -> None:
        """Its outcome is with the caller: its room is free."""
        with self._room:
            self._count -= 1
            self._bytes -= len(publication.payload)
            self._room.notify_all()

    def _has_room(self, size: int) -> bool:
        return self._count < self._max_count and (self._count == 0 or self._bytes + size <= self._max_bytes)
