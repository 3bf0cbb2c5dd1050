"""The verdict's transition table as data; the one in `docs/drift.md` is made from it."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Verdict(StrEnum):
    """What is said of the gateway as a whole."""

    NONE = "none"
    WARNING = "warning"
    ALARM = "alarm"


class Event(StrEnum):
    """What one judged batch, or an activation, means to the verdict."""

    CLEAR = "clear"
    """No monitor warns any more: each that did has been quiet for long enough."""
    WARN = "warn"
    """A monitor warns, or one alarms that may not flag."""
    HELD = "held"
    """An alarm that may flag has not been quiet for long enough, and this batch does not repeat it."""
    ALARM = "alarm"
    """This batch is above the threshold of a monitor that may flag."""
    BARRED = "barred"
    """The same within the cool-down."""
    ACTIVATED = "activated"
    """Other weights serve from now on."""


@dataclass(frozen=True, slots=True)
class Move:
    """Where an event leads, and whether a flag is raised on the way."""

    to: Verdict
    flags: bool = False


_N, _W, _A = Verdict.NONE, Verdict.WARNING, Verdict.ALARM

TABLE: Mapping[tuple[Verdict, Event], Move] = MappingProxyType(
    {
        (_N, Event.CLEAR): Move(_N),
        (_N, Event.WARN): Move(_W),
        (_N, Event.HELD): Move(_W),
        (_N, Event.ALARM): Move(_A, flags=True),
        (_N, Event.BARRED): Move(_W),
        (_N, Event.ACTIVATED): Move(_N),
        (_W, Event.CLEAR): Move(_N),
        (_W, Event.WARN): Move(_W),
        (_W, Event.HELD): Move(_W),
        (_W, Event.ALARM): Move(_A, flags=True),
        (_W, Event.BARRED): Move(_W),
        (_W, Event.ACTIVATED): Move(_N),
        (_A, Event.CLEAR): Move(_N),
        (_A, Event.WARN): Move(_W),
        (_A, Event.HELD): Move(_A),
        (_A, Event.ALARM): Move(_A),
        (_A, Event.BARRED): Move(_A),
        (_A, Event.ACTIVATED): Move(_N),
    }
)


def table_lines() -> list[str]:
    """The table in Markdown: a row an event, a column a verdict; an exclamation mark says that a flag is raised."""
    head = "| event | " + " | ".join(f"from {verdict}" for verdict in Verdict) + " |"
    lines = [head, "|---" * (len(Verdict) + 1) + "|"]
    for event in Event:
        moves = [TABLE[verdict, event] for verdict in Verdict]
        lines.append(f"| {event} | " + " | ".join(f"{move.to}{'!' if move.flags else ''}" for move in moves) + " |")
    return lines
