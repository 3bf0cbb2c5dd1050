"""What a monitor says of one batch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

ShiftKind = Literal["loss", "covariate", "label", "concept", "activation", "unknown"]
"""What seems to have changed: the loss alone; the inputs; the shares of the classes; what the inputs mean."""


@dataclass(frozen=True, slots=True)
class Attribution:
    """A quantity that changed.

    Attributes:
        name: of the feature (as in the manifest), class, or signal.
        before: its level in the reference, in ``unit``.
        now: its level since the change, in ``unit``.
        unit: as in the manifest; "" where it has none.
        weight: share of the statistic that it explains, 0 to 1.
        measure: what ``before`` and ``now`` are: the mean, the standard deviation, or a share of the samples.
    """

    name: str
    before: float
    now: float
    unit: str = ""
    weight: float = 1.0
    measure: Literal["level", "spread", "share"] = "level"


class Finding(NamedTuple):
    """A monitor's judgement of one batch; a larger statistic is worse.

    Attributes:
        statistic: finite.
        threshold: above it the monitor alarms; the promised false-alarm rate is that of crossing it.
        warning_threshold: above it the monitor warns; at most ``threshold``.
        began_samples: how many of the monitor's latest samples lie after the estimated change; None: no change seen.
        shift: what seems to have changed.
        attributions: what changed, the most important first; at most 8.
        rows: how many samples the judgement rests on, of those shown.
    """

    statistic: float
    threshold: float
    warning_threshold: float
    began_samples: int | None = None
    shift: ShiftKind = "unknown"
    attributions: tuple[Attribution, ...] = ()
    rows: int = 0

    @property
    def alarm(self) -> bool:
        """Whether the statistic lies above the threshold."""
        return self.statistic > self.threshold

    @property
    def warning(self) -> bool:
        """Whether the statistic lies above the warning's threshold; an alarm is one too."""
        return self.statistic > self.warning_threshold


class Stepped(NamedTuple):
    """What a monitor says of several batches in a row.

    Attributes:
        state: after the last.
        findings: of each, where it costs much without what explains a warning (``began_samples``, ``shift``,
            ``attributions``): of a fast stream only the last batch of many, and what is flagged, is told of.
        explained: the finding of a batch, by its place, with all that is known.
    """

    state: Any
    findings: list[Finding]
    explained: Callable[[int], Finding]
