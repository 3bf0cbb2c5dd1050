"""A look at which something may be wrong: what it is, or that it is nothing."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.faults.away import LARGEST, OUTSIDE, Leaving, followed, look_away, strayed
from edge_agent.drift.faults.opening import LEAST_SENTINEL, Evidence, is_sentinel, settle, went_on_sound
from edge_agent.drift.faults.params import MARGIN, PartParams
from edge_agent.drift.faults.report import FaultReport
from edge_agent.drift.faults.runs import stuck_readings
from edge_agent.drift.faults.state import PartState, Recent, Standing
from edge_agent.drift.faults.window import WINDOW, Window, begun_anew, by_window, is_odd, taken_in


class Seen(NamedTuple):
    """A look at the c sensors of one block.

    Attributes:
        x, times_s: (m, c) readings in their order, and (m,).
        same: (m, c) whether each equals the one before it.
        equal: (c,) how many do.
        lowest, highest: (c,), NaN where a reading is.
        zero: whether a sensor reads 0 that never does.
        in_time: whether they follow those before them at once.
    """

    x: NDArray[np.float64]
    times_s: NDArray[np.float64]
    same: NDArray[np.bool_]
    equal: NDArray[np.int64]
    lowest: NDArray[np.float64]
    highest: NDArray[np.float64]
    zero: bool
    in_time: bool


class Found(NamedTuple):
    """One block's sensors after a look: the state, broken readings, reports, and whether nothing is or was wrong."""

    state: PartState
    mask: NDArray[np.bool_] | None = None
    reports: list[FaultReport] | tuple[FaultReport, ...] = ()
    calm: bool = True


def only_strayed(part: PartParams, state: PartState, seen: Seen) -> Found | None:
    """What follows where a few readings of some sensors leave their range, and nothing else is the matter; None: it is.

    As `look_closer` finds it, bit for bit, for a third of the operations: noise does so every few hundred samples.
    """
    after = strayed_standing(part, state, seen)
    if after is None:
        return None
    window = taken_in(state.recent, seen.x, seen.lowest, seen.highest, float(seen.times_s[0]))
    if window.filled >= WINDOW:
        if is_odd(part, window):
            return None
        after = looked_at_anew(part, after)
    recent = advanced(part, state.recent, seen.x, seen.same, seen.equal, seen.times_s, window)
    return Found(PartState(recent, after), calm=after.calm)


def strayed_standing(part: PartParams, state: PartState, seen: Seen) -> Standing | None:
    """The standing after a look at which some sensors leave their range and nothing else is the matter, as far as its
    window shows nothing; None: it is.

    Args:
        seen: ``same`` is not looked at.
    """
    recent, standing = state
    away = standing.away > 0
    chosen = np.flatnonzero(away | ~((seen.lowest >= standing.inner_low) & (seen.highest <= standing.inner_high)))
    if not len(chosen) or np.count_nonzero(standing.kind):
        return None
    if _may_be_broken(part, state, seen, chosen):
        return None
    some = seen.x[:, chosen]
    outside = (some < standing.inner_low[chosen]) | (some > standing.inner_high[chosen])
    last = np.where(seen.in_time & (np.abs(recent.last[chosen]) < LARGEST), recent.last[chosen], np.nan)
    leaving = Leaving(chosen, some, last, seen.times_s, outside)
    changed = strayed(part, standing, leaving)
    if changed is None:
        changed = followed(part, standing, leaving)
    return None if changed is None else standing._replace(**changed, **went_on_sound(standing, seen.times_s))


def _may_be_broken(part: PartParams, state: PartState, seen: Seen, chosen: NDArray[np.int64]) -> bool:
    """Whether a reading may be none by itself, or a sensor stand still."""
    if seen.zero or np.count_nonzero(seen.equal + state.recent.run >= part.run_limit * state.standing.patience):
        return True
    low, high = seen.lowest[chosen], seen.highest[chosen]
    least, most = part.limit_low[chosen], part.limit_high[chosen]
    if np.count_nonzero((low > least) & (high < most)) < len(chosen):
        return True
    lowest, highest = float(np.minimum.reduce(seen.lowest)), float(np.maximum.reduce(seen.highest))
    if max(-lowest, highest) < LEAST_SENTINEL:
        return False
    beyond = np.flatnonzero((seen.lowest < part.inner_low) | (seen.highest > part.inner_high))
    return max(-lowest, highest) >= LARGEST or bool(np.count_nonzero(is_sentinel(seen.x[:, beyond].ravel())))


def look_closer(part: PartParams, state: PartState, seen: Seen) -> Found:
    """Something may be wrong: every reading is looked at."""
    recent, standing = state
    x, times_s, same, equal = seen.x, seen.times_s, seen.same, seen.equal
    broken = _broken(part, x)
    if np.count_nonzero(broken):
        broken &= ~_turned(part, x, broken)
    clean = np.where(broken, np.nan, x)
    finite = np.where(np.abs(x) < LARGEST, x, np.nan)
    stuck = np.zeros(x.shape, np.bool_)
    long = np.flatnonzero(equal + recent.run >= part.run_limit * standing.patience)
    if len(long):
        stuck[:, long] = stuck_readings(
            part, x[:, long], same[:, long], recent.run[long], standing.patience[long], long
        )
    before = np.empty_like(x)
    before[0] = np.where(np.abs(recent.last) < LARGEST, recent.last, np.nan)
    before[1:] = finite[:-1]
    if not seen.in_time:
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
        undecided=away.undecided,
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
    after = standing._replace(**away.changed, **settled.changed)
    if window.filled >= WINDOW:
        after = looked_at_anew(part, after)
    recent = advanced(part, recent, x, same, equal, times_s, window)
    return Found(PartState(recent, after), settled.mask, settled.reports, after.calm)


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


def advanced(
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
    return Recent(x[-1].copy(), run, run_s, *(begun_anew(window) if window.filled >= WINDOW else window))


def looked_at_anew(part: PartParams, standing: Standing) -> Standing:
    """With each window those that left their range for a reason that was none are looked at again."""
    idle = standing.away == 0
    return standing._replace(
        inner_low=np.where(idle, part.inner_low, standing.inner_low),
        inner_high=np.where(idle, part.inner_high, standing.inner_high),
    )
