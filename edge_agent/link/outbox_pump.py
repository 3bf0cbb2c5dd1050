"""The thread that carries the outbox to the broker."""

import random
import threading
import time

import structlog

from edge_agent.errors import StorageError, TransientError
from edge_agent.link.outbox import Outbox
from edge_agent.link.session import MqttSession

WINDOW = 50
POLL_S = 1.0
BRIDGE_START_JITTER_S = 1.0

_log = structlog.get_logger(__name__)


class OutboxPump:
    """Publishes what is due while the session is connected and the bridge is not known to be away.

    The owner of the session's inbox tells it what happens: :meth:`on_connected`, :meth:`on_bridge`;
    acknowledgements go to the outbox directly.
    """

    def __init__(self, outbox: Outbox, session: MqttSession, topic: str, *, window: int = WINDOW) -> None:
        self.failure: BaseException | None = None
        self._outbox = outbox
        self._session = session
        self._topic = topic
        self._window = window
        self._rng = random.Random()
        self._bridge_boot: str | None = None
        self._bridge_away = False
        self._hold_until_s = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="outbox-pump", daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the thread runs; if not, and nobody stopped it, ``failure`` says why."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End; what is not acknowledged stays held."""
        self._stopping.set()
        self._outbox.added.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    def on_connected(self) -> None:
        """The session has connected again: everything unacknowledged is sent again."""
        self._outbox.resend_all()

    def on_bridge(self, boot_id: str, *, online: bool = True) -> None:
        """The bridge's presence: away, nothing is sent; a new start, everything is, after a random moment."""
        self._bridge_away = not online
        if online and boot_id != self._bridge_boot:
            self._bridge_boot = boot_id
            self._hold_until_s = time.monotonic() + self._rng.uniform(0.0, BRIDGE_START_JITTER_S)
            self._outbox.resend_all()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._outbox.added.wait(POLL_S)
                self._outbox.added.clear()
                self._stopping.wait(max(0.0, self._hold_until_s - time.monotonic()))
                if self._session.connected and not self._bridge_away and not self._stopping.is_set():
                    self._try_to_send()
        except BaseException as error:
            self.failure = error
            _log.exception("outbox-pump-died")

    def _try_to_send(self) -> None:
        try:
            self._send()
        except StorageError as error:
            _log.error("outbox-unreadable", problem=str(error))
            self._stopping.wait(POLL_S)

    def _send(self) -> None:
        due = self._outbox.due(time.monotonic(), self._window)
        for place, (sequence, data) in enumerate(due):
            try:
                self._session.publish(self._topic, data, timeout_s=POLL_S)
            except TransientError as error:
                _log.info("outbox-held-back", sequence=sequence, problem=error.problem)
                self._outbox.not_sent(later for later, _ in due[place:])
                return
