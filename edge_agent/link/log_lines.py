"""Log lines of both programs: JSON on standard error; one that cannot be written is lost, and nothing else is."""

import io
import logging
import sys
from typing import TextIO, cast

import structlog

from edge_agent.link.log_limit import LogLimit


class LogStream(io.TextIOBase):
    """A stream whose disk may be full or whose reader may be gone.

    A thread that logs must not end for that: it would take the program with it (measured).
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.lost_lines = 0

    def write(self, text: str) -> int:
        """Write a line, or lose and count it."""
        try:
            return self._stream.write(text)
        except (OSError, ValueError):
            self.lost_lines += 1
            return 0

    def flush(self) -> None:
        """Pass on what is buffered, if that can be done."""
        try:
            self._stream.flush()
        except (OSError, ValueError):
            self.lost_lines += 1


def configure_logs(level: str) -> None:
    """JSON lines on standard error, from ``level`` on."""
    structlog.configure(
        processors=[
            LogLimit(),
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.WriteLoggerFactory(file=cast(TextIO, LogStream(sys.stderr))),
        cache_logger_on_first_use=True,
    )
