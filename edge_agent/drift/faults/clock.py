"""The samples' times: gaps, and clocks that were set back."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.faults.report import FaultReport, Kind
from edge_agent.drift.faults.state import FaultState

GAP_STEPS = 50.0
"""What passes between two samples is a gap from so many times the usual on."""
GAP_LEAST_S = 1.0
BACK_STEPS = 5.0
"""So many usual steps back may a sample be that overtook another."""
SETTLED = 64
"""Samples from which on the usual step is taken for known."""
_SHARE = 0.05


def look_at_times(state: FaultState, times_s: NDArray[np.float64]) -> tuple[FaultState, bool, list[FaultReport]]:
    """The state with the times taken in; whether they go on without a break; what was wrong with them.

    Args:
        times_s: (n,) n >= 1; those that are not finite are passed over.

    Cost: O(n).
    """
    steps = np.empty(len(times_s))
    steps[0] = times_s[0] - state.latest_s
    np.subtract(times_s[1:], times_s[:-1], out=steps[1:])
    least, most = float(steps.min()), float(steps.max())
    usual = state.step_s
    limit = max(GAP_STEPS * usual, GAP_LEAST_S)
    latest = float(times_s[-1])
    if least >= 0 and (most <= limit or state.seen < SETTLED) and state.seen:
        mean = (latest - state.latest_s) / len(steps)
        return _went_on(state, latest, mean, len(steps)), most <= limit, []
    return _broken(state, times_s, steps, limit)


def _went_on(state: FaultState, latest_s: float, mean: float, count: int) -> FaultState:
    share = min(1.0, max(_SHARE, count / (state.seen + count)))
    step = mean if state.seen < 2 else state.step_s + share * (mean - state.step_s)
    return replace(state, latest_s=latest_s, step_s=step, seen=state.seen + count)


def _broken(
    state: FaultState, times_s: NDArray[np.float64], steps: NDArray[np.float64], limit: float
) -> tuple[FaultState, bool, list[FaultReport]]:
    """The first sample, a gap, or a step back; the usual step is learnt from the rest."""
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
