"""Rates as an operator states them: `1 per 30 days`, `10 per second`, `1 per 1000 batches`."""

import math
import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import ConfigError

_DAY_S: Final = 86_400.0
UNITS_S: Final = {
    "second": 1.0,
    "minute": 60.0,
    "hour": 3_600.0,
    "day": _DAY_S,
    "week": 7 * _DAY_S,
    "month": 30 * _DAY_S,
    "year": 365 * _DAY_S,
}
"""Seconds in each; a month has 30 days, a year 365."""
_SHORT: Final = {"s": "second", "sec": "second", "min": "minute", "h": "hour", "d": "day", "batche": "batch"}
_NUMBER: Final = r"\d+(?:\.\d*)?(?:e[+-]?\d+)?|\.\d+(?:e[+-]?\d+)?"
_RATE: Final = re.compile(
    rf"\s*(?P<count>{_NUMBER})\s*(?:per|in|a|an|every|/)\s*(?P<many>{_NUMBER})?\s*(?P<unit>[a-z]+)\s*", re.IGNORECASE
)
_BARE: Final = re.compile(rf"\s*(?P<count>{_NUMBER})\s*(?P<unit>hz)?\s*", re.IGNORECASE)
_LEAST: Final = 1e-30
"""Of a rate; what is less, and one over it, is nothing that anybody counts, and leaves float64 in products."""
_GAP_STEPS: Final = 10.0
_SAY_IN: Final = ("second", "minute", "hour", "day", "year")


@dataclass(frozen=True, slots=True)
class Rate:
    """So many events in so many units.

    Attributes:
        per_unit: events a unit, > 0.
        unit: ``second``, or ``batch``, or ``sample``.
        words: as stated.
    """

    per_unit: float
    unit: str
    words: str


def false_alarms_of(text: str) -> Rate:
    """``1 per 30 days``, ``2 per year``, ``1 per 1000 batches``, ``1e-3`` (a batch).

    Raises:
        ConfigError: it is no such rate.
    """
    rate = _rate(text, bare="batch")
    if rate is None or rate.unit == "sample":
        raise ConfigError(
            f"--false-alarms {text!r} is no rate",
            'for example "1 per 30 days", "1 per 10000 batches" or 1e-4 (a batch)',
        )
    if rate.unit == "batch" and rate.per_unit >= 1:
        raise ConfigError(f"--false-alarms {text!r} is one a batch, or more", 'for example "1 per 10000 batches"')
    return rate


def stream_rate_of(text: str) -> Rate:
    """``10 per second``, ``1 per 15 minutes``, ``50 Hz``: samples that a gateway serves.

    Raises:
        ConfigError: it is no such rate.
    """
    rate = _rate(text, bare="")
    if rate is None or rate.unit != "second":
        raise ConfigError(f"--stream-rate {text!r} is no rate", 'for example "10 per second" or "1 per 15 minutes"')
    return rate


def rate_of_times(times_s: NDArray[np.float64]) -> Rate | None:
    """Samples a second of a recorded stream; steps much longer than usual count as a pause, not as a slow stream.

    Args:
        times_s: (n,) seconds, rising.

    Returns:
        None where the times say nothing: fewer than two rows, or all at once.
    """
    steps = np.diff(times_s)
    steps = steps[steps >= 0]
    usual = float(np.median(steps)) if len(steps) else 0.0
    span_s = float(np.minimum(steps, _GAP_STEPS * usual).sum()) if usual > 0 else float(steps.sum())
    if not np.isfinite(span_s) or span_s <= 0:
        return None
    per_second = len(steps) / span_s
    return Rate(per_second, "second", f"{said_of_seconds(per_second)}, by the data's times")


def said_of_seconds(per_second: float) -> str:
    """A rate in words: ``10 per second``, ``1 per 2.5 days``."""
    if per_second >= 1:
        return f"{per_second:.3g} per second"
    return f"1 per {said_span(1 / per_second)}"


def said_span(seconds: float) -> str:
    """A duration in its largest fitting unit: ``90 seconds``, ``2.5 days``."""
    unit = next((name for name in reversed(_SAY_IN) if seconds >= UNITS_S[name]), "second")
    amount = seconds / UNITS_S[unit]
    number = f"{amount:.3g}" if amount < 1000 else f"{amount:,.0f}"
    return f"{number} {unit}{'' if number == '1' else 's'}"


def _rate(text: str, *, bare: str) -> Rate | None:
    words = " ".join(text.split())
    found = _BARE.fullmatch(text)
    if found is not None:
        count, unit = float(found["count"]), "second" if found["unit"] else bare
        return _stated(count, unit, words) if unit else None
    found = _RATE.fullmatch(text)
    if found is None:
        return None
    count, many = float(found["count"]), float(found["many"] or 1)
    unit = found["unit"].lower()
    unit = unit.removesuffix("s") if len(unit) > 1 else unit
    unit = _SHORT.get(unit, unit)
    if not 0 < many < math.inf:
        return None
    if unit in UNITS_S:
        return _stated(count / (many * UNITS_S[unit]), "second", words)
    return _stated(count / many, unit, words) if unit in ("batch", "sample") else None


def _stated(per_unit: float, unit: str, words: str) -> Rate | None:
    return Rate(per_unit, unit, words) if _LEAST < per_unit < 1 / _LEAST else None
