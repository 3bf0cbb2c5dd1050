"""The highest numbers ever given out, in a file beside the store: a store that went back must not give them again."""

import threading
from pathlib import Path

import structlog

from edge_agent.link.durable import read_file, write_file
from edge_agent.wire.codec import Count, Message, Name, decode, encode
from edge_agent.wire.errors import WireError

NUMBERS_FILE = "numbers.json"
NUMBERS_CAP_BYTES = 64 * 1024
BELIEVED_AT_MOST = 2**48
"""A counter that rises once a second needs nine million years to it: what is above was never given out by us."""

_log = structlog.get_logger(__name__)


class _File(Message):
    highest: dict[Name, Count]


class HighestNumbers:
    """Numbers by the name of their counter; each is on the disk before it is used.

    A damaged file is named and counts as absent: see ``is_lost``.

    Args:
        path: made at the first number.

    Raises:
        StorageError: the disk refuses.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self.is_lost = not path.exists()
        self._highest = {} if self.is_lost else self._read()

    def value(self, name: str) -> int:
        """The highest number noted; 0 if none was."""
        with self._lock:
            return self._highest.get(name, 0)

    def note(self, name: str, number: int) -> None:
        """A number is about to be given out, or was seen; a lower one than the highest changes nothing.

        Raises:
            StorageError: the disk refuses: it must not be used.
        """
        with self._lock:
            if number <= self._highest.get(name, 0):
                return
            highest = self._highest | {name: number}
            write_file(self._path, encode(_File(highest=highest)))
            self._highest = highest

    def _read(self) -> dict[str, int]:
        data = read_file(self._path, cap_bytes=NUMBERS_CAP_BYTES)
        try:
            highest = dict(decode(_File, data, cap_bytes=NUMBERS_CAP_BYTES).highest)
            if max(highest.values(), default=0) > BELIEVED_AT_MOST:
                raise WireError(NUMBERS_FILE, f"a number above {BELIEVED_AT_MOST}")
            return highest
        except WireError as error:
            _log.error("numbers-unreadable", path=str(self._path), problem=error.problem)
            self.is_lost = True
            return {}
