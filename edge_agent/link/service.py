"""What the service manager is told: ready, moving, stopping (systemd's notification protocol).

https://www.freedesktop.org/software/systemd/man/sd_notify.html: datagrams of ``NAME=value`` lines to
the socket that ``NOTIFY_SOCKET`` names.
"""

import os
import socket
import time
from collections.abc import Callable, Mapping, MutableMapping

import structlog

ADDRESS_VARIABLE = "NOTIFY_SOCKET"
WATCHDOG_VARIABLES = ("WATCHDOG_USEC", "WATCHDOG_PID")
FEEDS_AN_INTERVAL = 4
STATUS_CAP = 200

_log = structlog.get_logger(__name__)


class ServiceNotifier:
    """Speaks to the service manager that started this process; says nothing where there is none.

    Nothing here blocks or raises: a manager that does not listen must not end the service.

    Args:
        address: of its datagram socket; ``@`` at the start stands for an abstract one; None: nobody listens.
        watchdog_s: it ends this process when it was not fed for so long; None: it does not watch.
    """

    def __init__(
        self,
        address: str | None,
        watchdog_s: float | None = None,
        *,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.watchdog_s = watchdog_s
        self._address = address
        self._monotonic_s = monotonic_s
        self._fed_s = float("-inf")
        self._deaf = False

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str]) -> "ServiceNotifier":
        """What ``NOTIFY_SOCKET``, ``WATCHDOG_USEC``, ``WATCHDOG_PID`` say; taken out: no child speaks for us."""
        address = environment.pop(ADDRESS_VARIABLE, None)
        interval, owner = (environment.pop(name, "") for name in WATCHDOG_VARIABLES)
        ours = owner in ("", str(os.getpid()))
        watchdog_s = int(interval) / 1e6 if ours and interval.isdecimal() and int(interval) > 0 else None
        return cls(address if address and address[0] in "/@" and len(address) > 1 else None, watchdog_s)

    def ready(self, status: str) -> None:
        """The service works."""
        self._send(f"READY=1\nSTATUS={_line(status)}")

    def status(self, text: str) -> None:
        """One line for ``systemctl status``."""
        self._send(f"STATUS={_line(text)}")

    def stopping(self) -> None:
        """The service begins to stop."""
        self._send("STOPPING=1\nSTATUS=stopping")

    def feed(self) -> None:
        """The service moves; may be called at any rate, a quarter of the interval apart is sent."""
        now_s = self._monotonic_s()
        if self.watchdog_s is not None and now_s - self._fed_s >= self.watchdog_s / FEEDS_AN_INTERVAL:
            self._fed_s = now_s
            self._send("WATCHDOG=1")

    def _send(self, text: str) -> None:
        if self._address is None:
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.setblocking(False)
                sock.sendto(text.encode(), address)
            self._deaf = False
        except OSError as error:
            if not self._deaf:
                _log.warning("service_manager_not_told", address=self._address, problem=str(error))
            self._deaf = True


class Pulse:
    """When a thread last came round; beaten by that thread, read by any other."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s = monotonic_s
        self._last_s: float | None = monotonic_s()

    def beat(self) -> None:
        """It came round."""
        self._last_s = self._monotonic_s()

    def rest(self) -> None:
        """It has nothing more to do, and that is right."""
        self._last_s = None

    @property
    def age_s(self) -> float:
        """Seconds since the last beat; 0 at rest."""
        last_s = self._last_s
        return 0.0 if last_s is None else self._monotonic_s() - last_s


class Watchdog:
    """Feeds the service manager's watchdog while every pulse is younger than its interval.

    Without a watchdog it does nothing.

    Args:
        notifier: whom to feed.
        pulses: by the name of the part.
        patience: parts whose one turn may take several intervals, with how many.
    """

    def __init__(
        self, notifier: ServiceNotifier, pulses: Mapping[str, Pulse], patience: Mapping[str, float] | None = None
    ) -> None:
        self._notifier = notifier
        self._pulses = dict(pulses)
        self._patience = dict(patience or {})
        self._hanging: frozenset[str] = frozenset()

    def look(self) -> None:
        """Feed, unless a part hangs; called more often than once an interval."""
        interval_s = self._notifier.watchdog_s
        if interval_s is None:
            return
        hanging = frozenset(
            name for name, pulse in self._pulses.items() if pulse.age_s > interval_s * self._patience.get(name, 1.0)
        )
        if hanging != self._hanging:
            self._tell(hanging)
        if not hanging:
            self._notifier.feed()

    def _tell(self, hanging: frozenset[str]) -> None:
        self._hanging = hanging
        if hanging:
            names = ", ".join(sorted(hanging))
            _log.error(
                "part_hangs", parts=sorted(hanging), hint="the service manager ends this process unless it moves"
            )
            self._notifier.status(f"hanging: {names}")
        else:
            _log.info("parts_move_again")
            self._notifier.status("running")


def _line(text: str) -> str:
    return " ".join(text.split())[:STATUS_CAP]
