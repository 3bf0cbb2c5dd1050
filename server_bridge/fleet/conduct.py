"""What a gateway may send in a minute, and when the bridge stops listening to it. Pure.

A message over the quota is dropped, counted and not acknowledged: an honest gateway with a long
backlog sends it again, later. Its back-off keeps it below the second limit (50 messages in flight,
each sent at most every 5, 10, 20 ... seconds), so that only a gateway that does not follow the
protocol reaches it.
"""

from dataclasses import dataclass
from enum import Enum

WINDOW_S = 60.0


@dataclass(frozen=True, slots=True)
class ConductLimits:
    """Per gateway and minute.

    Attributes:
        bytes_quota: beyond, messages are dropped.
        messages_quota: beyond, messages are dropped.
        bytes_most: beyond, the gateway is ignored until an operator readmits it.
        messages_most: the same.
        strays_most: retained messages where none belongs; beyond, the same.
    """

    bytes_quota: int = 8 * 1024 * 1024
    messages_quota: int = 3_000
    bytes_most: int = 32 * 1024 * 1024
    messages_most: int = 6_000
    strays_most: int = 200


class Verdict(Enum):
    """What becomes of a message and its sender."""

    FINE = "fine"
    OVER_QUOTA = "over-quota"
    IGNORE = "ignore"


@dataclass(slots=True)
class _Sent:
    bytes: int = 0
    messages: int = 0
    strays: int = 0


class Conduct:
    """Counts what each gateway sends in fixed windows of a minute.

    Args:
        limits: for every gateway.
    """

    def __init__(self, limits: ConductLimits | None = None) -> None:
        self._limits = limits or ConductLimits()
        self._window = -1
        self._sent: dict[str, _Sent] = {}

    def judge(self, gateway: str, size_bytes: int, now_s: float, *, stray: bool = False) -> Verdict:
        """Count one message; time is monotonic seconds, ``stray`` says that it was retained where none is."""
        window = int(now_s // WINDOW_S)
        if window != self._window:
            self._window = window
            self._sent.clear()
        sent = self._sent.setdefault(gateway, _Sent())
        sent.bytes += size_bytes
        sent.messages += 1
        sent.strays += stray
        limits = self._limits
        if sent.bytes > limits.bytes_most or sent.messages > limits.messages_most or sent.strays > limits.strays_most:
            return Verdict.IGNORE
        over = sent.bytes > limits.bytes_quota or sent.messages > limits.messages_quota
        return Verdict.OVER_QUOTA if over else Verdict.FINE

    def account(self, gateway: str) -> str:
        """What a gateway has sent in this minute, for people."""
        sent = self._sent.get(gateway, _Sent())
        return (
            f"{sent.messages} messages, {sent.bytes} bytes, {sent.strays} of them retained where none is, in a minute"
        )
