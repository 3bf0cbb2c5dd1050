"""What a check found."""

import time
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at: what, whether it is right, what was seen, and the remedy if it is not."""

    what: str
    ok: bool
    saw: str
    remedy: str = ""


def moment(seconds: float) -> str:
    """A time for people, UTC."""
    try:
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(seconds))
    except (OverflowError, ValueError, OSError):
        return f"{seconds:.0f} s after 1970"
