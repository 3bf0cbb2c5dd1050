"""A sensor that is broken, or samples whose times are."""

from typing import Annotated, Literal

from pydantic import Field

from edge_agent.wire.codec import Count, Digest, Finite, Name, Text, WireModel, Word


class SensorFaultEvent(WireModel):
    """A sensor's fault begins, or has ended (``until_s``); the readings are served on, and not trained on.

    ``fault_id`` is the same in both. ``fault``: missing, not-finite, out-of-range, dropped, stuck, clipped, unit (more
    in ``detail``), or of the samples' times: time-gap, clock-backwards. Times are those of the samples. ``value``: the
    first broken reading, in ``unit``. ``open_faults``: of the gateway, after this. ``untold``: faults since the last
    such event that were not told for their number.
    """

    kind: Literal["sensor-fault"] = "sensor-fault"
    fault_id: Digest
    fault: Word
    sensor: Name
    unit: Annotated[str, Field(max_length=64)] = ""
    since_s: Finite
    until_s: Finite | None = None
    value: Finite | None = None
    detail: Text = ""
    open_faults: Count = 0
    untold: Count = 0

    def words(self) -> str:
        """In words, without the end: ``temperature stuck at 21.5 C``."""
        value = "" if self.value is None else f" at {self.value:.6g}{' ' if self.unit else ''}{self.unit}"
        return f"{self.sensor} {self.fault}{value}{f' ({self.detail})' if self.detail else ''}"
