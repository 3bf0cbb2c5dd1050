"""Times and thresholds in words, the same in status, report and picture."""

from datetime import UTC, datetime

NO_THRESHOLD = 1e100
"""Above it: of a monitor that cannot alarm."""
_CALENDAR_FROM_S, _CALENDAR_TO_S = 946_684_800.0, 4_102_444_800.0
"""2000 and 2100: other times are no dates."""


def time_words(time_s: float) -> str:
    """A date and time, UTC, where the seconds may be those since 1970; else the seconds."""
    if not _CALENDAR_FROM_S <= time_s < _CALENDAR_TO_S:
        return f"{time_s:.10g} s"
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M:%S")
