"""The work of a session's network thread: connect, serve, wait, again."""

import queue
import random
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from edge_agent.link.events import FAILURE, Connected, Disconnected, Published, Received, SessionEvent, Will
from edge_agent.link.intake import Intake
from edge_agent.link.outgoing import Outgoing, Publication
from edge_agent.link.settings import Backoff, BrokerSettings, SessionOptions
from edge_agent.link.subscriptions import SubscriptionBook

if TYPE_CHECKING:
    from edge_agent.link.connection import Connection

CONNACK_TIMEOUT_S = 10.0
STEADY_AFTER_S = 10.0
IDLE_STEP_S = 1.0
BLOCKED_STEP_S = 0.02

# A connection that carried something, or held for STEADY_AFTER_S, ends a row of failures: on a link that is cut
# every few seconds a gateway would else be away for longer and longer, though each connection serves.
# Everybody loses a broker at one moment: the first attempt after a lost connection is spread as that after
# this many failures, over 4 s with the usual back-off.
LOST_COUNTS_AS = 4
TAKEN_OVER = Backoff(first_s=60.0, cap_s=900.0)

# mosquitto 2.0.11 evicts without a reason code (measured): so many accepted connections in a row,
# none refused between them, each cut off within this time, mean that another client uses our id.
# A broker that died cuts off too and may be back before we try again, but at the cut nothing listens there.
# A reset tells neither way: bad links make resets, and mosquitto now and then while it evicts.
EVICTIONS_TELL = 4
EVICTED_WITHIN_S = 30.0

_log = structlog.get_logger(__name__)


class NetworkLoop:
    """Everything here runs on the session's thread, but :meth:`wake`, :meth:`stop` and the properties."""

    def __init__(
        self,
        settings: BrokerSettings,
        options: SessionOptions,
        *,
        will: Callable[[int], Will] | None,
        backoff: Backoff,
        inbox: "queue.Queue[SessionEvent]",
        outgoing: Outgoing,
        subscriptions: SubscriptionBook,
    ) -> None:
        self.connection = 0
        self.malformed_topics = 0
        self._settings = settings
        self._options = options
        self._will = will
        self._backoff = backoff
        self._rng = random.Random()
        self._intake = Intake(inbox, max_messages=2 * options.receive_maximum)
        self._outgoing = outgoing
        self._subscriptions = subscriptions
        self._link: Connection | None = None
        self._accepted = False
        self._useful = False
        self._failures = 0
        self._evictions = 0
        self._takeovers = 0
        self._stopping = threading.Event()
        self._drain_until = 0.0
        self._waker, self._wakened = socket.socketpair()
        self._waker.setblocking(False)
        self._wakened.setblocking(False)

    @property
    def connected(self) -> bool:
        """Whether the broker has accepted and the connection is not known to be lost."""
        link = self._link
        return link is not None and link.connected

    @property
    def heard_s(self) -> float:
        """When the broker last sent anything, if only a part of a packet; monotonic seconds."""
        link = self._link
        return 0.0 if link is None else link.heard_s

    @property
    def backlog(self) -> int:
        """Messages that wait for room in the inbox."""
        return self._intake.messages

    def wake(self) -> None:
        """End the thread's wait: there is something to send."""
        with suppress(OSError):  # enough wake-ups wait already, or the thread has ended
            self._waker.send(b"\0")

    def stop(self, drain_s: float) -> None:
        """End :meth:`run` once what is queued is sent, or after ``drain_s``."""
        self._drain_until = time.monotonic() + drain_s
        self._stopping.set()
        self.wake()

    def run(self) -> None:
        """Serve connection after connection until stopped."""
        try:
            while not self._finished():
                self._wait(self._serve_connection())
                if self._stopping.is_set():
                    break
        finally:
            self._link = None
            self._waker.close()
            self._wakened.close()

    def accepted(self, session_present: bool) -> None:
        """``ConnectionListener``: subscribe before anything else is sent."""
        self._accepted = True
        if self._link is not None:
            self._link.subscribe(self._subscriptions.renew())
        self._intake.put(Connected(self.connection, session_present))

    def message(self, topic: str, payload: bytes, retain: bool, acknowledge: Callable[[], None]) -> None:
        """``ConnectionListener``: on to the inbox."""
        self._intake.put(Received(topic, payload, retain), acknowledge)

    def answered(self, message_id: int, code: int, reason: str) -> None:
        """``ConnectionListener``: settle the publication."""
        publication = self._outgoing.answered(message_id)
        self._useful = self._useful or code < FAILURE
        if publication is not None:
            self._settle(publication, code < FAILURE, reason)

    def malformed(self) -> None:
        """``ConnectionListener``: count it."""
        self.malformed_topics += 1

    def not_subscribed(self, reason: str) -> None:
        """``ConnectionListener``: log it; nothing else can be done."""
        _log.error(
            "mqtt-subscription-refused", client_id=self._options.client_id, broker=self._settings.place, reason=reason
        )

    def _serve_connection(self) -> float:
        """One connection from attempt to end; returns how long to wait before the next."""
        from edge_agent.link.connection import Connection  # late: paho is loaded beside serving, not before it

        self.connection += 1
        self._accepted = self._useful = False
        began_s = time.monotonic()
        will = None if self._will is None else self._will(self.connection)
        link = self._link = Connection(self._settings, self._options, will, self)
        try:
            link.open()
            self._drive(link)
            link.close(orderly=self._stopping.is_set())
        except OSError as error:
            link.ended = f"{type(error).__name__}: {error}"
            link.close(orderly=False)
        return self._after(link, time.monotonic() - began_s)

    def _drive(self, link: "Connection") -> None:
        connack_by_s = time.monotonic() + CONNACK_TIMEOUT_S
        while link.ended is None:
            self._intake.flush()
            if self._finished():
                return
            if link.connected:
                self._send(link)
            elif time.monotonic() > connack_by_s:
                raise TimeoutError("no CONNACK")
            link.step(self._step_s(), self._wakened, reading=not self._intake.saturated)
            self._clear_wake_ups()

    def _finished(self) -> bool:
        return self._stopping.is_set() and (self._outgoing.idle or time.monotonic() > self._drain_until)

    def _step_s(self) -> float:
        return BLOCKED_STEP_S if self._intake.blocked or self._stopping.is_set() else IDLE_STEP_S

    def _send(self, link: "Connection") -> None:
        for request in self._subscriptions.take():
            if isinstance(request, str):
                link.unsubscribe([request])
            else:
                link.subscribe([request])
        while link.ended is None and (publication := self._outgoing.take(link.window)) is not None:
            if publication.packet_bytes > link.max_packet_bytes:
                self._settle(publication, False, f"the broker takes at most {link.max_packet_bytes} bytes")
            elif publication.qos == 0:
                link.publish(publication)
                self._settle(publication, True, "sent once")
            else:
                self._outgoing.sent(link.publish(publication), publication)

    def _after(self, link: "Connection", lasted_s: float) -> float:
        for publication in self._outgoing.connection_lost():
            self._settle(publication, False, "given up: every connection that carried it was lost")
        forgotten = self._intake.forget_messages()
        if self._stopping.is_set():
            return 0.0
        wait_s = self._next_wait_s(link, lasted_s)
        taken_over = wait_s >= TAKEN_OVER.first_s
        log = _log.error if taken_over else _log.info
        log(
            "mqtt-client-id-used-twice" if taken_over else "mqtt-disconnected",
            client_id=self._options.client_id,
            broker=self._settings.place,
            reason=link.ended,
            retry_in_s=round(wait_s, 2),
            forgotten_messages=forgotten,
        )
        self._intake.put(Disconnected(str(link.ended), wait_s, taken_over))
        return wait_s

    def _next_wait_s(self, link: "Connection", lasted_s: float) -> float:
        if not (link.reset and lasted_s < EVICTED_WITHIN_S):
            evicted = link.cut_off and lasted_s < EVICTED_WITHIN_S and not link.broker_is_gone()
            self._evictions = self._evictions + 1 if evicted else 0
        if link.taken_over or self._evictions >= EVICTIONS_TELL:
            self._takeovers += 1
            return TAKEN_OVER.first_s + TAKEN_OVER.delay_s(self._takeovers, self._rng)
        if lasted_s >= STEADY_AFTER_S or self._useful:
            self._failures = 0
        if lasted_s >= TAKEN_OVER.cap_s:
            self._takeovers = 0
        self._failures = max(self._failures + 1, LOST_COUNTS_AS if self._accepted else 0)
        return self._backoff.delay_s(self._failures, self._rng)

    def _wait(self, wait_s: float) -> None:
        """Wait, and until the inbox has taken everything: a stuck reader gets no further connections."""
        until_s = time.monotonic() + wait_s
        self._intake.flush()
        while time.monotonic() < until_s or self._intake.blocked:
            left_s = BLOCKED_STEP_S if self._intake.blocked else until_s - time.monotonic()
            if self._stopping.wait(max(0.0, left_s)):
                return
            self._intake.flush()

    def _settle(self, publication: Publication, ok: bool, reason: str) -> None:
        event = Published(publication.token, ok, reason)
        self._intake.put(event, lambda: self._outgoing.told(publication))

    def _clear_wake_ups(self) -> None:
        try:
            while self._wakened.recv(4096):
                pass
        except BlockingIOError:
            return
