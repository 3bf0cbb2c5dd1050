"""Where log lines go: a line that cannot be written is lost, and nothing else is."""

import io
from typing import TextIO


class LogStream(io.TextIOBase):
    """A stream whose disk may be full or whose reader may be gone.

    A thread that logs must not end for that: it would take the agent with it (measured).
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
