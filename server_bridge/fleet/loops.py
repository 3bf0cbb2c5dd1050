"""The bridge's two fleet threads: one reads the inbox, one keeps time."""

import queue
import threading
import time
from collections.abc import Callable

import structlog

from edge_agent.errors import StorageError
from edge_agent.link.events import Connected, Disconnected, Published, Received, SessionEvent
from edge_agent.link.service import Pulse
from server_bridge.fleet.ingest import Ingest

BATCH_MAX = 256
POLL_S = 0.2
HOUSEKEEPING_S = 30.0

_log = structlog.get_logger(__name__)


class Loop:
    """A named daemon thread that repeats one step until stopped; its failure is kept, not hidden.

    Args:
        name: of the thread.
        step: one pass; every wait in it ends within a second or so.
    """

    def __init__(self, name: str, step: Callable[[], None]) -> None:
        self.name = name
        self.pulse = Pulse()
        self.failure: BaseException | None = None
        self._step = step
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def stopping(self) -> bool:
        """Whether the end was asked for."""
        return self._stopping.is_set()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout_s: float) -> bool:
        """Ask for the end and wait for it; whether it came in time."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        return not self.alive

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self.pulse.beat()
                self._step()
        except StorageError as error:
            self.failure = error
            _log.error("thread-ended", thread=self.name, problem=error.problem, hint=error.hint)
        except BaseException as error:
            self.failure = error
            _log.exception("thread-failed", thread=self.name)


class InboxStep:
    """One pass over the session's inbox: a batch of messages, and what the session itself tells.

    Args:
        inbox: the session's.
        ingest: takes the messages.
        on_connected: told of every connection.
    """

    def __init__(
        self,
        inbox: "queue.Queue[SessionEvent]",
        ingest: Ingest,
        on_connected: Callable[[], None],
    ) -> None:
        self._inbox = inbox
        self._ingest = ingest
        self._on_connected = on_connected

    def __call__(self) -> None:
        """Wait a moment for messages, then handle what is there."""
        try:
            events = [self._inbox.get(timeout=POLL_S)]
        except queue.Empty:
            return
        while len(events) < BATCH_MAX:
            try:
                events.append(self._inbox.get_nowait())
            except queue.Empty:
                break
        self._handle(events)

    def _handle(self, events: list[SessionEvent]) -> None:
        messages: list[Received] = []
        for event in events:
            match event:
                case Received():
                    messages.append(event)
                case Connected():
                    self._ingest.handle(messages)
                    messages = []
                    _log.info("broker-connected", connection=event.connection)
                    self._on_connected()
                case Disconnected():
                    report = _log.error if event.taken_over else _log.warning
                    report("broker-disconnected", reason=event.reason, taken_over=event.taken_over)
                case Published():
                    if not event.ok:
                        _log.warning("publication-refused", reason=event.reason)
        self._ingest.handle(messages)


class TimerStep:
    """One pass of the clock: commands and grants that are due; now and then housekeeping.

    Args:
        tick: sends what is due.
        housekeeping: what happens every half minute.
    """

    def __init__(self, tick: Callable[[], None], housekeeping: Callable[[], None]) -> None:
        self._tick = tick
        self._housekeeping = housekeeping
        self._due = threading.Event()
        self._next_housekeeping_s = time.monotonic() + HOUSEKEEPING_S

    def hurry(self) -> None:
        """Something is due now."""
        self._due.set()

    def __call__(self) -> None:
        """Wait a moment, or until hurried; then tick."""
        self._due.wait(POLL_S)
        self._due.clear()
        self._tick()
        if time.monotonic() >= self._next_housekeeping_s:
            self._next_housekeeping_s = time.monotonic() + HOUSEKEEPING_S
            self._housekeeping()
