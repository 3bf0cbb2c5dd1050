"""The screen: each reading of each sensor, before anything judges it or learns from it."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.faults.clock import Times, look_at_times
from edge_agent.drift.faults.closely import Found, Seen, advanced, look_closer, only_strayed
from edge_agent.drift.faults.params import FaultParams, PartParams
from edge_agent.drift.faults.report import FaultReport, Screened
from edge_agent.drift.faults.state import FaultState, PartState
from edge_agent.drift.faults.stretch import LOOKS, Stretch
from edge_agent.drift.faults.window import WINDOW, is_odd, taken_in
from edge_agent.drift.observed import Observed, all_finite


def step(params: FaultParams, state: FaultState, observed: Observed) -> tuple[FaultState, Screened]:
    """Screen some samples, in the order in which they were served; any number, none too.

    Args:
        observed: its ids, outputs and embeddings are not looked at.

    Returns:
        The state after them; which readings are broken, and which faults began or ended.

    Cost: O(n f).
    """
    times_s = np.asarray(observed.times_s, np.float64)
    features = np.asarray(observed.features)
    if len(times_s) <= params.rows_a_look:
        return _look(params, state, features, times_s) if len(times_s) else (state, Screened(None))
    faulty: NDArray[np.bool_] | None = None
    reports: list[FaultReport] = []
    at_once = LOOKS * params.rows_a_look
    for start in range(0, len(times_s), at_once):
        some = slice(start, start + at_once)
        state, found = _stepped(params, state, features[some], times_s[some])
        for rows, screened in found:
            reports += screened.reports
            if screened.faulty is not None:
                faulty = np.zeros(features.shape, np.bool_) if faulty is None else faulty
                faulty[start + rows.start : start + rows.stop] = screened.faulty
    return state, Screened(faulty if faulty is not None and faulty.any() else None, tuple(reports))


def _stepped(
    params: FaultParams, state: FaultState, features: NDArray[Any], times_s: NDArray[np.float64]
) -> tuple[FaultState, list[tuple[slice, Screened]]]:
    """After so many samples as are looked at by few operations; what was found where each has to be looked at."""
    stretch, start = _stretch(params, state, features, times_s), 0
    found: list[tuple[slice, Screened]] = []
    while start < len(times_s):
        if stretch is not None:
            state, looks = stretch.taken_in(state, start // params.rows_a_look)
            start += looks * params.rows_a_look
        rows = slice(start, min(len(times_s), start + params.rows_a_look))
        if start < len(times_s):
            state, screened = _look(params, state, features[rows], times_s[rows])
            found.append((rows, screened))
        start = rows.stop
    return state, found


def _stretch(
    params: FaultParams, state: FaultState, features: NDArray[Any], times_s: NDArray[np.float64]
) -> Stretch | None:
    """The whole looks, ready to be taken in at once; None: each has to be looked at."""
    whole = len(times_s) // params.rows_a_look * params.rows_a_look
    if not whole or np.count_nonzero(np.isfinite(times_s)) < len(times_s):
        return None
    if params.unscreened and not all_finite(features):
        return None
    return Stretch.of(params, state, features[:whole], times_s[:whole])


def _look(
    params: FaultParams, state: FaultState, features: NDArray[Any], times_s: NDArray[np.float64]
) -> tuple[FaultState, Screened]:
    """As many samples as are looked at together, at least one."""
    if np.count_nonzero(np.isfinite(times_s)) < len(times_s):
        times_s = _filled(times_s, state.latest_s if state.seen else 0.0)
    calm = True
    faulty: NDArray[np.bool_] | None = None
    times, in_time, reports = look_at_times(Times(state.latest_s, state.step_s, state.seen), times_s)
    parts: list[PartState] = []
    for part, before in zip(params.parts, state.parts, strict=True):
        x = np.asarray(part.block.readings_of(features), np.float64)
        found = _screen(part, before, x, times_s, calm=state.calm, in_time=in_time)
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


def _screen(
    part: PartParams,
    state: PartState,
    x: NDArray[np.float64],
    times_s: NDArray[np.float64],
    *,
    calm: bool,
    in_time: bool,
) -> Found:
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
    zero = part.zero is not None and bool(np.count_nonzero((x == 0) & part.zero))
    sound = sound and not zero
    if part.block.readings > 1:
        times_s = np.repeat(times_s, part.block.readings)
    window = taken_in(recent, x, lowest, highest, float(times_s[0])) if sound else None
    if window is not None and (window.filled < WINDOW or not is_odd(part, window)):
        after = advanced(part, recent, x, same, equal, times_s, window)
        if window.filled >= WINDOW and standing.inner_low is not part.inner_low:
            standing = standing._replace(inner_low=part.inner_low, inner_high=part.inner_high)
        return Found(PartState(after, standing))
    seen = Seen(x, times_s, same, equal, lowest, highest, zero, in_time)
    return only_strayed(part, state, seen) or look_closer(part, state, seen)


def _filled(times_s: NDArray[np.float64], before_s: float) -> NDArray[np.float64]:
    """Times that are none are those of the samples before."""
    known = np.isfinite(times_s)
    place = np.maximum.accumulate(np.where(known, np.arange(len(times_s)), -1))
    filled: NDArray[np.float64] = np.where(place < 0, before_s, times_s[place])
    return filled


def _named(params: FaultParams, part: PartParams, report: FaultReport) -> FaultReport:
    sensor = part.first + report.sensor
    return replace(report, sensor=sensor, name=params.channels.names[sensor], unit=params.channels.units[sensor])


def _not_finite(features: NDArray[Any], faulty: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    """Values that belong to no sensor are looked at for being numbers only."""
    if all_finite(features):
        return faulty
    broken: NDArray[np.bool_] = ~np.isfinite(features)
    return broken if faulty is None else faulty | broken
