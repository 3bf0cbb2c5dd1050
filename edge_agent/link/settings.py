"""Where the broker is and how to speak to it."""

import random
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """Files of mutual TLS: the authority that signed the broker's certificate, and our own certificate and key."""

    ca: Path
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Address and credentials of one broker."""

    host: str
    port: int
    keepalive_s: int = 30
    username: str | None = None
    password: str | None = None
    tls: TlsSettings | None = None


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with full jitter, so that a fleet does not come back as a herd."""

    first_s: float = 0.5
    cap_s: float = 30.0

    def delay_s(self, failures: int, rng: random.Random) -> float:
        """A random wait after the ``failures``-th failure in a row (1, 2, ...)."""
        return rng.uniform(0.0, min(self.cap_s, self.first_s * 2.0 ** min(failures - 1, 30)))
