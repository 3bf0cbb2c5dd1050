"""Where the broker is and how to speak to it."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

CA_FILE = "ca.crt"
CERTIFICATE_SUFFIX = ".crt"
KEY_SUFFIX = ".key"
CLOCK_FAR_AHEAD_S = 10 * 365 * 86_400.0
"""A clock so far past the last signed time is judged wrong: no fleet goes ten years without a release."""


@dataclass(frozen=True, slots=True)
class TimeJudge:
    """How a gateway without a reliable clock judges the dates of the broker's certificate.

    Attributes:
        floor_s: a time that has surely passed, seconds since 1970; must not raise.
        report: told, from the network thread, of dates that were tolerated; must not block or raise.
    """

    floor_s: Callable[[], float]
    report: Callable[[str], None] = lambda problem: None


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Files of mutual TLS.

    Attributes:
        ca: the authority that signed the broker's certificate.
        certificate: ours, for every connection.
        key: of ``certificate``.
        credentials: instead of those two, a folder with ``<client id>.crt`` and ``.key`` for each connection.
        judge: judges the broker's dates in OpenSSL's place.
    """

    ca: Path
    certificate: Path | None = None
    key: Path | None = None
    credentials: Path | None = None
    judge: TimeJudge | None = None

    def own_files(self, client_id: str) -> tuple[Path, Path] | None:
        """Certificate and key of the connection with this client id."""
        if self.credentials is not None:
            return self.credentials / f"{client_id}{CERTIFICATE_SUFFIX}", self.credentials / f"{client_id}{KEY_SUFFIX}"
        if self.certificate is None:
            return None
        return self.certificate, self.certificate if self.key is None else self.key


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Address and credentials of one broker."""

    host: str
    port: int
    keepalive_s: int = 30
    username: str | None = None
    password: str | None = None
    tls: TlsSettings | None = None

    @property
    def place(self) -> str:
        """``host:port``, for people."""
        return f"{self.host}:{self.port}"

    def judged_by(self, judge: TimeJudge | None) -> "BrokerSettings":
        """The same broker, its certificate's dates judged by us; ``None``: by OpenSSL and the clock."""
        return self if self.tls is None else replace(self, tls=replace(self.tls, judge=judge))


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """What the CONNECT packet says of the session."""

    client_id: str
    clean_start: bool
    session_expiry_s: int
    receive_maximum: int


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with full jitter, so that a fleet does not come back as a herd."""

    first_s: float = 0.5
    cap_s: float = 30.0

    def delay_s(self, failures: int, rng: random.Random) -> float:
        """A random wait after the ``failures``-th failure in a row (1, 2, ...)."""
        return rng.uniform(0.0, min(self.cap_s, self.first_s * 2.0 ** min(failures - 1, 30)))
