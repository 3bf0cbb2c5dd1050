"""How many false alarms are tolerable where nobody asked for a rate: the same to who calibrates and who watches."""

from edge_agent.wire.manifest import MonitorSpec

TOLERABLE_RATE = 2e-3
"""False alarms a batch: one flag in 500 batches of 32 is one in 16,000 samples.

No build promises more where nothing was asked for. A monitor whose threshold is that of more, because its reference is
too short for less, is not chosen where the settings name none; one whose threshold aims at fewer than its reference can
promise is, and without labels only warns. A rate that was asked for at the build, and could have been lower, is the
operator's own.
"""


def cries_wolf(spec: MonitorSpec) -> bool:
    """Whether a monitor's threshold is that of more false alarms than are tolerable, and nobody asked for so many."""
    if spec.promise is None or spec.false_alarm_rate <= TOLERABLE_RATE:
        return False
    lowest = spec.promise.lowest_rate
    return lowest * (1 - 1e-9) <= spec.false_alarm_rate <= lowest * (1 + 1e-9)


def is_unproven(spec: MonitorSpec | None) -> bool:
    """Whether a monitor's reference was too short to promise few enough false alarms, or any rate at all."""
    if spec is None or spec.promise is None:
        return False
    return spec.promise.lowest_rate > spec.false_alarm_rate or cries_wolf(spec)
