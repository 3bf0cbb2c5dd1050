"""No stranger fills a log: lines of one kind are written so often in a minute, then counted."""

import time
from collections.abc import Callable, MutableMapping
from typing import Any

import structlog

WINDOW_S = 60.0
LINES_PER_WINDOW = 60


class LogLimit:
    """A structlog processor; the first line of a kind after a full minute says how many were left out.

    A kind is the event's name and, where it names one, its gateway.

    Args:
        lines: of a kind in a minute.
        monotonic: seconds, never going back.
    """

    def __init__(self, lines: int = LINES_PER_WINDOW, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._lines = lines
        self._monotonic = monotonic
        self._window = -1
        self._written: dict[tuple[str, str], int] = {}
        self._left_out: dict[tuple[str, str], int] = {}

    def __call__(self, logger: object, name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Pass a line on, or drop it.

        Raises:
            structlog.DropEvent: its kind has had its lines.
        """
        window = int(self._monotonic() // WINDOW_S)
        if window != self._window:
            self._window = window
            self._left_out = {kind: count - self._lines for kind, count in self._written.items() if count > self._lines}
            self._written = {}
        kind = (str(event.get("event")), str(event.get("gateway", "")))
        self._written[kind] = self._written.get(kind, 0) + 1
        if self._written[kind] > self._lines:
            raise structlog.DropEvent
        left_out = self._left_out.pop(kind, 0)
        if left_out:
            event["lines_left_out"] = left_out
        return event
