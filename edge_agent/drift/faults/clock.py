"""The samples' times: gaps, and clocks that were set back."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.faults.report import FaultReport, Kind

GAP_STEPS = 50.0
"""What passes between two samples is a gap from so many times the usual on."""
GAP_LEAST_S = 1.0
BACK_STEPS = 5.0
"""So many usual steps back may a sample be that overtook another."""
SETTLED = 64
"""Samples from which on the usual step is taken for known."""
_SHARE = 0.05


class Times(NamedTuple):
    """What the times say so far: as in `FaultState`."""

    latest_s: float
    step_s: float
    seen: int


def look_at_times(state: Times, times_s: NDArray[np.float64]) -> tuple[Times, bool, list[FaultReport]]:
    """The times taken in; whether they go on without a break; what was wrong with them.

    Args:
        times_s: (n,) n >= 1, finite.

    Cost: O(n).
    """
    steps = np.empty(len(times_s))
    steps[0] = times_s[0] - state.latest_s
    np.subtract(times_s[1:], times_s[:-1], out=steps[1:])
    least, most = float(np.minimum.reduce(steps)), float(np.maximum.reduce(steps))
    following = gone_on(state, least, most, float(times_s[-1]), len(steps))
    if following is not None:
        return following, True, []
    return _broken(state, times_s, steps, _limit(state))


def gone_on(state: Times, least_s: float, most_s: float, latest_s: float, count: int) -> Times | None:
    """After ``count`` samples that follow each other at once; None: they do not.

    Args:
        least_s, most_s: the shortest and the longest step to one of them from the sample before it.
        latest_s: time of the last.
    """
    if least_s >= 0 and most_s <= _limit(state):
        return _went_on(state, latest_s, (latest_s - state.latest_s) / count, count)
    return None


def _limit(state: Times) -> float:
    return max(GAP_STEPS * state.step_s, GAP_LEAST_S)


def _went_on(state: Times, latest_s: float, mean: float, count: int) -> Times:
    share = min(1.0, max(_SHARE, count / (state.seen + count)))
    step = mean if state.seen < 2 else state.step_s + share * (mean - state.step_s)
    return Times(latest_s, step, state.seen + count)


def _broken(
    state: Times, times_s: NDArray[np.float64], steps: NDArray[np.float64], limit: float
) -> tuple[Times, bool, list[FaultReport]]:
    """The first sample, slow ones, a gap, or a step back; the usual step is learnt from the rest."""
    finite = np.isfinite(steps)
    settled = state.seen >= SETTLED
    gaps = finite & (steps > limit) & settled
    back = finite & (steps < -max(BACK_STEPS * state.step_s, GAP_LEAST_S))
    reports: list[FaultReport] = []
    for kind, rows in ((Kind.GAP, gaps), (Kind.CLOCK, back)):
        if rows.any():
            row = int(rows.argmax())
            until = float(times_s[row])
            reports.append(FaultReport(kind, -1, "time", "s", until - float(steps[row]), until, float(steps[row])))
    usual = steps[finite & (steps >= 0) & ~gaps]
    mean = float(usual.mean()) if len(usual) else state.step_s
    known = times_s[np.isfinite(times_s)]
    latest = float(known[-1]) if len(known) else state.latest_s
    return _went_on(state, latest, mean, len(steps)), not reports, reports
