"""What a session takes and what it tells: plain values."""

from dataclasses import dataclass
from typing import Literal

RetainHandling = Literal[0, 1, 2]
FAILURE = 0x80
"""Reason codes of MQTT 5 from here on are refusals."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A topic filter; ``retain_handling`` 0 brings retained messages again after every connect."""

    filter: str
    retain_handling: RetainHandling = 0


@dataclass(frozen=True, slots=True)
class Will:
    """What the broker publishes, retained, when the connection is lost."""

    topic: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Connected:
    """The broker accepted; subscriptions have been sent. ``connection`` is the number that the will names."""

    connection: int
    session_present: bool


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection, or an attempt at one, ended. ``taken_over``: another client uses our id (an alarm)."""

    reason: str
    retry_in_s: float
    taken_over: bool = False


@dataclass(frozen=True, slots=True)
class Received:
    """A message; ``retain`` is the flag its publisher set, or that it came from the broker's retained store."""

    topic: str
    payload: bytes
    retain: bool


@dataclass(frozen=True, slots=True)
class Published:
    """How a publication ended at the broker: it proves nothing about any receiver.

    ``reason`` is MQTT's (``Success``, ``No matching subscribers``, ``Not authorized``), or why it was never sent.
    """

    token: int
    ok: bool
    reason: str


SessionEvent = Connected | Disconnected | Received | Published
