"""A service manager's end of the notification socket."""

import select
import socket
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

WAIT_S = 120.0


class ServiceManager:
    """Receives what services say.

    Args:
        address: of the socket: a path, or ``@name`` for an abstract one.
    """

    def __init__(self, address: Path | str) -> None:
        self.address = str(address)
        self.heard: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        self._socket.bind("\0" + self.address[1:] if self.address.startswith("@") else self.address)

    def environment(self, watchdog_s: float) -> dict[str, str]:
        """The variables that a watched service is started with."""
        return {"NOTIFY_SOCKET": self.address, "WATCHDOG_USEC": str(int(watchdog_s * 1e6))}

    def listen(self, for_s: float) -> list[str]:
        """What comes in this time."""
        until_s = time.monotonic() + for_s
        heard: list[str] = []
        while (left_s := until_s - time.monotonic()) > 0 or not heard:
            if not select.select([self._socket], [], [], max(0.0, left_s))[0]:
                break
            heard.append(self._socket.recv(4096).decode())
        self.heard += heard
        return heard

    def wait(self, what: str, alive: Callable[[], bool] = lambda: True) -> None:
        """Until a message has this line; what was heard before does not count."""
        until_s = time.monotonic() + WAIT_S
        while not any(what in message.splitlines() for message in self.listen(0.1)):
            assert alive(), f"the service ended; heard {self.heard[-10:]}"
            assert time.monotonic() < until_s, f"{what} did not come; heard {self.heard[-10:]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
