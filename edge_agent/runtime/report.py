"""What the agent says of itself: the retained state message and the status file."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from edge_agent.errors import StorageError, TransientError
from edge_agent.link.durable import write_json
from edge_agent.link.session import MqttSession
from edge_agent.runtime.part import ThreadPart
from edge_agent.wire.codec import encode
from edge_agent.wire.messages import State

STATUS_INTERVAL_S = 10.0
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Reading:
    """The state as of now, and what is for the operator on this machine: counters, and documents by their key."""

    state: State
    counters: dict[str, int | float | str]
    documents: dict[str, Any] = field(default_factory=dict)


class Reporter(ThreadPart):
    """One thread that publishes the state each interval and whenever something changed.

    Args:
        read: the state as of now.
        status_file: rewritten at most every 10 s.
    """

    def __init__(
        self, session: MqttSession, topic: str, status_file: Path, *, read: Callable[[], Reading], interval_s: float
    ) -> None:
        super().__init__("reporter")
        self._session = session
        self._topic = topic
        self._status_file = status_file
        self._read = read
        self._interval_s = interval_s
        self._status_due_s = 0.0
        self._wanted = threading.Event()

    def stop(self, timeout_s: float) -> None:
        """Report once more and stop."""
        self._stopping.set()
        self._wanted.set()
        super().stop(timeout_s)

    def soon(self) -> None:
        """Something changed: report now."""
        self._wanted.set()

    def set_interval(self, interval_s: float) -> None:
        """Report this often from now on."""
        self._interval_s = interval_s
        self._wanted.set()

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._wanted.wait(self._interval_s)
            self._wanted.clear()
            self._report()
        self._status_due_s = 0.0
        self._report()

    def _report(self) -> None:
        try:
            reading = self._read()
        except StorageError as error:
            _log.error("state_not_read", problem=str(error))
            return
        if self._session.connected:
            try:
                self._session.publish(self._topic, encode(reading.state), retain=True)
            except TransientError as error:
                _log.info("state_not_sent", problem=str(error))
        if time.monotonic() >= self._status_due_s:
            self._status_due_s = time.monotonic() + STATUS_INTERVAL_S
            try:
                told = {**reading.counters, **reading.documents, "written_s": time.time()}
                status = {**reading.state.model_dump(by_alias=True), **told}
                write_json(self._status_file, status)
            except StorageError as error:
                _log.error("status_not_written", problem=str(error))


def peak_rss_bytes() -> int:
    """The most memory this process has held; 0 where the kernel does not tell.

    Not ``getrusage``: its figure begins with that of the process that started this one.
    """
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)
