"""TLS to the broker, and the judgement of its certificate's dates where the clock may be wrong."""

import errno
import os
import ssl
import time
from collections.abc import Mapping

import structlog

from edge_agent.link.settings import CLOCK_FAR_AHEAD_S, TimeJudge, TlsSettings

NO_CHECK_TIME = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME of OpenSSL's x509_vfy.h; Python has no name for it."""

_log = structlog.get_logger(__name__)


class BadDates(OSError):
    """The broker's certificate is not valid at this time."""


class _ClosedOnFailure(ssl.SSLSocket):
    """paho drops a socket whose handshake failed, open."""

    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except OSError:
            self.close()
            raise


def tls_context(settings: TlsSettings, client_id: str) -> ssl.SSLContext:
    """Mutual TLS 1.2 or later with host name check.

    With a judge OpenSSL does not look at dates; :func:`check_dates` does after the handshake.

    Raises:
        OSError: a file is absent, unreadable or no certificate.
    """
    own = settings.own_files(client_id)
    for path in (settings.ca, *(own or ())):
        if not path.is_file():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=str(settings.ca))
    context.sslsocket_class = _ClosedOnFailure
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.judge is not None:
        context.verify_flags |= NO_CHECK_TIME
    if own is not None:
        context.load_cert_chain(str(own[0]), str(own[1]))
    return context


def check_dates(certificate: Mapping[str, object] | None, judge: TimeJudge, now_s: float) -> None:
    """Whether the peer's certificate is valid at max(clock, floor).

    Before its time it is tolerated, and reported, while the clock is below the floor: the clock is wrong.
    Past its time it is refused, unless only a clock far ahead of the floor says so: that clock is wrong too.

    Args:
        certificate: from ``getpeercert``; its chain and host name are verified already.
        judge: knows a time that has surely passed.
        now_s: the clock, seconds since 1970.

    Raises:
        BadDates: not valid at this time.
    """
    begins_s, ends_s = _date(certificate, "notBefore"), _date(certificate, "notAfter")
    floor_s = judge.floor_s()
    at_s = max(now_s, floor_s)
    if begins_s <= at_s <= ends_s:
        return
    if at_s < begins_s:
        problem = f"the broker's certificate is valid from {_day(begins_s)}; the clock says {_day(now_s)}"
        wrong_clock = now_s < floor_s
    else:
        problem = f"the broker's certificate expired on {_day(ends_s)}; the clock says {_day(now_s)}"
        wrong_clock = 0 < floor_s <= ends_s and now_s > floor_s + CLOCK_FAR_AHEAD_S
    if not wrong_clock:
        raise BadDates(problem)
    problem += f", and the last signed time is {_day(floor_s)}: tolerated, the clock is wrong"
    _log.warning("broker-certificate-dates-tolerated", problem=problem)
    judge.report(problem)


def _date(certificate: Mapping[str, object] | None, name: str) -> float:
    value = None if certificate is None else certificate.get(name)
    if not isinstance(value, str):
        raise BadDates("the broker showed no certificate with dates")
    return float(ssl.cert_time_to_seconds(value))


def _day(seconds: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return f"{seconds:.0f} s after 1970"
