"""Parts of the agent: what its supervisor starts, looks at and stops."""

import threading
from abc import ABC, abstractmethod
from typing import Protocol

import structlog

_log = structlog.get_logger(__name__)


class Part(Protocol):
    """A part under supervision."""

    @property
    def alive(self) -> bool:
        """Whether it works."""
        ...

    def start(self) -> None:
        """Begin."""
        ...

    def stop(self, timeout_s: float) -> object:
        """End within the time."""
        ...


class ThreadPart(ABC):
    """A part that is one thread, a daemon.

    Args:
        name: the thread's, and the part's in the log.

    Attributes:
        failure: what ended the thread by itself; the supervisor sees that it is not ``alive``.
    """

    def __init__(self, name: str) -> None:
        self.failure: BaseException | None = None
        self._stopping = threading.Event()
        self._name = name
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End after the work in hand, or be left behind."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @abstractmethod
    def _work(self) -> None:
        """All that the thread does, until ``_stopping`` is set."""

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:
            self.failure = error
            _log.exception("part_failed", part=self._name)
