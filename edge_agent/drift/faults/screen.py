"""The screen: each reading of each sensor, before anything judges it or learns from it."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.faults.away import OUTSIDE, look_away
from edge_agent.drift.faults.clock import Times, look_at_times
from edge_agent.drift.faults.opening import Evidence, is_sentinel, settle
from edge_agent.drift.faults.params import MARGIN, FaultParams, PartParams
from edge_agent.drift.faults.report import FaultReport, Screened
from edge_agent.drift.faults.runs import stuck_readings
from edge_agent.drift.faults.state import FaultState, PartState, Recent, Standing
from edge_agent.drift.faults.window import WINDOW, Window, by_window, is_odd, taken_in
from edge_agent.drift.observed import Observed

_LARGEST = 1e100
"""Beyond it sums of squares are none."""


def step(params: FaultParams, state: FaultState, observed: Observed) -> tuple[FaultState, Screened]:
    """Screen some samples, in the order in which they were served; any number, none too.

    Args:
        observed: its ids, outputs and embeddings are not looked at.

    Returns:
        The state after them; which readings are broken, and which faults began or ended.

    Cost: O(n f).
    """
    times_s = np.asarray(observed.times_s, np.float64)
    features = np.asarray(observed.features, np.float64)
    if len(times_s) <= params.rows_a_look:
        return _look(params, state, features, times_s) if len(times_s) else (state, Screened(None))
    faulty = np.zeros(features.shape, np.bool_)
    reports: list[FaultReport] = []
    for start in range(0, len(times_s), params.rows_a_look):
        rows = slice(start, start + params.rows_a_look)
        state, found = _look(params, state, features[rows], times_s[rows])
        reports += found.reports
        if found.faulty is not None:
            faulty[rows] = found.faulty
    return state, Screened(faulty if faulty.any() else None, tuple(reports))


def _look(
    params: FaultParams, state: FaultState, features: NDArray[np.float64], times_s: NDArray[np.float64]
) -> tuple[FaultState, Screened]:
    """As many samples as are looked at together, at least one."""
    if np.count_nonzero(np.isfinite(times_s)) < len(times_s):
        times_s = _filled(times_s, state.latest_s if state.seen else 0.0)
    calm = True
    faulty: NDArray[np.bool_] | None = None
    times, in_time, reports = look_at_times(Times(state.latest_s, state.step_s, state.seen), times_s)
    parts: list[PartState] = []
    for part, before in zip(params.parts, state.parts, strict=True):
        found = _screen(part, before, part.block.readings_of(features), times_s, calm=state.calm, in_time=in_time)
        parts.append(found.state)
        calm &= found.calm
        if found.mask is not None:
            faulty = np.zeros(features.shape, np.bool_) if faulty is None else faulty
            faulty[:, part.block.start : part.block.stop] = part.block.columns_of(found.mask)
        reports += [_named(params, part, report) for report in found.reports]
    if params.unscreened:
        faulty = _not_finite(features, faulty)
    return FaultState(tuple(parts), *times, calm), Screened(faulty, tuple(reports))


def rebaseline(params: FaultParams, state: FaultState) -> FaultState:
    """New weights change no sensor: the state as it is."""
    return state


class _Found(NamedTuple):
    state: PartState
    mask: NDArray[np.bool_] | None = None
    reports: list[FaultReport] | tuple[FaultReport, ...] = ()
    calm: bool = True


def _screen(
    part: PartParams,
    state: PartState,
    x: NDArray[np.float64],
    times_s: NDArray[np.float64],
    *,
    calm: bool,
    in_time: bool,
) -> _Found:
    """One block's sensors. What is as in the reference costs a few comparisons."""
    recent, standing = state
    same = np.empty(x.shape, np.bool_)
    np.equal(x[0], recent.last, out=same[0])
    np.equal(x[1:], x[:-1], out=same[1:])
    equal = np.add.reduce(same, axis=0) if np.count_nonzero(same) else part.none
    lowest, highest = np.minimum.reduce(x), np.maximum.reduce(x)
    sound = calm and np.count_nonzero(lowest >= standing.inner_low) == len(equal)
    sound = sound and np.count_nonzero(highest <= standing.inner_high) == len(equal)
    sound = sound and not np.count_nonzero(equal + recent.run >= part.run_limit)
    sound = sound and (part.zero is None or not np.count_nonzero((x == 0) & part.zero))
    if part.block.readings > 1:
        times_s = np.repeat(times_s, part.block.readings)
    window = taken_in(recent, x, lowest, highest, float(times_s[0])) if sound else None
    if window is not None and (window.filled < WINDOW or not is_odd(part, window)):
        after = _advanced(part, recent, x, same, equal, times_s, window)
        if window.filled >= WINDOW and standing.inner_low is not part.inner_low:
            standing = replace(standing, inner_low=part.inner_low, inner_high=part.inner_high)
        return _Found(PartState(after, standing))
    return _slowly(part, state, x, same, equal, times_s, in_time=in_time)


def _advanced(
    part: PartParams,
    recent: Recent,
    x: NDArray[np.float64],
    same: NDArray[np.bool_],
    equal: NDArray[np.int64],
    times_s: NDArray[np.float64],
    window: Window,
) -> Recent:
    """The latest readings after a batch; a full window begins anew."""
    size = len(x)
    if equal is not part.none:
        tail = same[::-1].argmin(axis=0)
        whole = equal == size
        run = np.where(whole, recent.run + size, tail + 1.0)
        run_s = np.where(whole, recent.run_s, times_s[size - 1 - tail])
    else:
        run, run_s = part.once, part.once * times_s[-1]
    if window.filled >= WINDOW:
        empty = np.full(window.top.shape, -np.inf)
        return Recent(x[-1].copy(), run, run_s, empty, np.zeros(window.top.shape), 0.0, 0)
    return Recent(x[-1].copy(), run, run_s, *window)


def _slowly(
    part: PartParams,
    state: PartState,
    x: NDArray[np.float64],
    same: NDArray[np.bool_],
    equal: NDArray[np.int64],
    times_s: NDArray[np.float64],
    *,
    in_time: bool,
) -> _Found:
    """Something may be wrong: every reading is looked at."""
    recent, standing = state
    broken = _broken(part, x)
    if np.count_nonzero(broken):
        broken &= ~_turned(part, x, broken)
    clean = np.where(broken, np.nan, x)
    finite = np.where(np.abs(x) < _LARGEST, x, np.nan)
    stuck = np.zeros(x.shape, np.bool_)
    long = np.flatnonzero(equal + recent.run >= part.run_limit * standing.patience)
    if len(long):
        stuck[:, long] = stuck_readings(
            part, x[:, long], same[:, long], recent.run[long], standing.patience[long], long
        )
    before = np.empty_like(x)
    before[0] = np.where(np.abs(recent.last) < _LARGEST, recent.last, np.nan)
    before[1:] = finite[:-1]
    if not in_time:
        before[0] = np.nan
    away = look_away(part, standing, finite, before, times_s)
    window = taken_in(recent, x, np.fmin.reduce(clean), np.fmax.reduce(clean), float(times_s[0]))
    clipped, still = by_window(part, window)
    evidence = Evidence(
        readings=x,
        times_s=times_s,
        broken=broken,
        stuck=stuck,
        run=recent.run,
        run_s=recent.run_s,
        suspect=away.suspect,
        suspect_from=away.first,
        unit=away.unit,
        unit_s=away.changed.get("away_s", standing.away_s),
        unit_value=away.changed.get("away_value", standing.away_value),
        clipped=clipped[0] | clipped[1],
        still=still,
        top=np.where(clipped[0], window.top[0], -window.top[1]),
        window_s=window.since_s,
    )
    settled = settle(part, standing, evidence)
    after = replace(standing, **away.changed, **settled.changed)
    if window.filled >= WINDOW:
        after = _looked_at_anew(part, after)
    recent = _advanced(part, recent, x, same, equal, times_s, window)
    return _Found(PartState(recent, after), settled.mask, settled.reports, after.calm)


def _broken(part: PartParams, x: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(m, c) readings that are none by themselves: not finite, too far away, or 0 where that never is."""
    broken: NDArray[np.bool_] = ~((x >= part.limit_low) & (x <= part.limit_high))
    if part.zero is not None:
        broken |= (x == 0) & part.zero
    outside = (x < part.inner_low) | (x > part.inner_high)
    if np.count_nonzero(outside):
        broken[outside] |= is_sentinel(x[outside])
    return broken


def _turned(part: PartParams, x: NDArray[np.float64], broken: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(m, c) readings far away that are in range with their sign reversed, where several sensors read so at once: what
    they sit on was turned round."""
    margin = MARGIN * (part.arrays["high"] - part.arrays["low"])
    mirrored: NDArray[np.bool_] = broken & (x != 0)
    mirrored &= (-x >= part.arrays["low"] - margin) & (-x <= part.arrays["high"] + margin)
    if (mirrored.mean(axis=0) >= OUTSIDE).sum() < 2:
        mirrored[:] = False
    return mirrored


def _filled(times_s: NDArray[np.float64], before_s: float) -> NDArray[np.float64]:
    """Times that are none are those of the samples before."""
    known = np.isfinite(times_s)
    place = np.maximum.accumulate(np.where(known, np.arange(len(times_s)), -1))
    filled: NDArray[np.float64] = np.where(place < 0, before_s, times_s[place])
    return filled


def _looked_at_anew(part: PartParams, standing: Standing) -> Standing:
    """With each window those that left their range for a reason that was none are looked at again."""
    idle = standing.away == 0
    return replace(
        standing,
        inner_low=np.where(idle, part.inner_low, standing.inner_low),
        inner_high=np.where(idle, part.inner_high, standing.inner_high),
    )


def _named(params: FaultParams, part: PartParams, report: FaultReport) -> FaultReport:
    sensor = part.first + report.sensor
    return replace(report, sensor=sensor, name=params.channels.names[sensor], unit=params.channels.units[sensor])


def _not_finite(features: NDArray[np.float64], faulty: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    """Values that belong to no sensor are looked at for being numbers only."""
    if np.isfinite(features).all():
        return faulty
    broken: NDArray[np.bool_] = ~np.isfinite(features)
    return broken if faulty is None else faulty | broken
