"""The estimate at work: batches in, a figure or a refusal every window; fixed memory."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.accuracy.estimated import AccuracyEstimate, Refusal
from edge_agent.drift.accuracy.judge import Judgement, Sums, apart, judge
from edge_agent.drift.accuracy.params import NAME, AccuracyParams
from edge_agent.drift.accuracy.signals import usable_rows
from edge_agent.drift.finding import Attribution, Finding
from edge_agent.drift.observed import Observed
from edge_agent.drift.stored_state import fitting
from edge_agent.errors import DataError

__all__ = ["NAME", "AccuracyParams", "AccuracyState", "latest", "rebaseline", "step", "step_many"]

QUIET_WINDOWS = 2
"""Windows like the reference that end the hold after a refusal for what the inputs are like."""
_REFUSALS: tuple[Refusal, ...] = get_args(Refusal)
_HOLDING = ("support", "weights", "unlike", "new-class", "class-mix")
_COUNTS = ("rows", "outside", "seen", "windows", "held", "quiet", "refusal", "last_rows", "others")
_SUMMED = 3
"""The first so many counts are the window's own."""
_FIGURES = ("value", "low", "high", "misfit", "speaking", "moved", "other")
"""Fields of a judgement, in its order."""


@dataclass(frozen=True)
class AccuracyState:
    """The window so far, and the figure of the last full one.

    Attributes:
        totals: (h + s + c,) sums over the window's usable rows.
        counts: (9,) int64: usable rows, those outside of the support, all rows; windows; whether a refusal is held,
            windows like the reference since; refusal and rows of the last window; whether other weights serve.
        early, early_counts: (h + s + c,) and (3,) the sums and the first three counts at the middle of the window.
        figures: (7,) of the last window's :class:`Judgement`; NaN where there is none.
    """

    totals: NDArray[np.float64]
    counts: NDArray[np.int64]
    figures: NDArray[np.float64]
    early: NDArray[np.float64]
    early_counts: NDArray[np.int64]

    @classmethod
    def start(cls, params: AccuracyParams) -> Self:
        """Nothing seen."""
        nothing = np.zeros(params.averaged)
        counts = np.zeros(len(_COUNTS), np.int64)
        return cls(nothing, counts, np.full(len(_FIGURES), np.nan), nothing, counts[:_SUMMED])

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Fixed shapes; bit-equal back by :meth:`from_arrays`."""
        return {field.name: np.array(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_arrays(cls, params: AccuracyParams, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """From :meth:`to_arrays`.

        Raises:
            DataError: an array is missing or of another shape or type.
        """
        return cls(**fitting(NAME, cls.start(params).to_arrays(), arrays))

    def count(self, name: str) -> int:
        """One of the counts by name."""
        return int(self.counts[_COUNTS.index(name)])


def step(params: AccuracyParams, state: AccuracyState, batch: Observed) -> tuple[AccuracyState, Finding]:
    """Take the next batch in; at a window's end, judge it.

    The finding's statistic is by how much the accuracy has surely fallen (the loss risen): the reference's less the
    interval's near end, 0 where refused or not known yet. It warns above ``warned_fall`` and alarms only where
    ``tolerated_fall`` says so.

    Args:
        batch: exactly ``batch_size`` rows, served by one model.

    Raises:
        DataError: another number of rows, or rows of other widths than the reference's.

    Cost: O(rows columns axes); at a window's end that of ``judge.judge``.
    """
    if len(batch) != params.batch_size:
        raise DataError(f"accuracy: a batch of {params.batch_size} rows is needed, not of {len(batch)}")
    following, (finding,) = step_many(params, state, batch)
    return following, finding


def step_many(params: AccuracyParams, state: AccuracyState, seen: Observed) -> tuple[AccuracyState, list[Finding]]:
    """Take several batches in: as :func:`step` one after the other, bit for bit, for less.

    Args:
        seen: any number of whole batches, served by one model, one after the other.

    Returns:
        The state after the last batch, and each one's finding.

    Raises:
        DataError: no whole batches, or rows of other widths than the reference's; nothing is taken in then.
    """
    size = params.batch_size
    if len(seen) % size or not len(seen):
        raise DataError(f"accuracy: {len(seen)} rows, a batch has {size}")
    found: list[Finding] = []
    said = _finding(params, state)
    for sums, counted in _sums(params, seen):
        totals, counts = state.totals, state.counts.copy()
        if sums is not None:
            totals = totals + sums
            counts[:2] += counted
        counts[2] += size
        middle = counts[2] * 2 <= params.window
        early = (totals, counts[:_SUMMED]) if middle else (state.early, state.early_counts)
        state = AccuracyState(totals, counts, state.figures, *early)
        if counts[2] >= params.window:
            state = _closed(params, state)
            said = _finding(params, state)
        found.append(said)
    return state, found


def _sums(params: AccuracyParams, seen: Observed) -> list[tuple[NDArray[np.float64] | None, tuple[int, int]]]:
    """Of each batch the functions' sums over its usable rows (None: it has none), and how many these are, and of them
    those outside of the support."""
    size, usable = params.batch_size, usable_rows(seen)
    if usable is None:
        signals, outside = params.map.signals(seen, size)
        beyond = np.add.reduce(outside.reshape(-1, size), axis=1).tolist()
        sums = params.sums(signals, size)
        return [(one, (size, many)) for one, many in zip(sums, beyond, strict=True)]
    if len(seen) > size:
        return [one for start in range(0, len(seen), size) for one in _sums(params, seen.part(start, start + size))]
    many = int(np.count_nonzero(usable))
    if many == 0:
        return [(None, (0, 0))]
    signals, outside = params.map.signals(_rows(seen, usable))
    return [(params.sums(signals, many)[0], (many, int(np.count_nonzero(outside))))]


def latest(params: AccuracyParams, state: AccuracyState) -> AccuracyEstimate | None:
    """The figure or refusal of the last full window; None: none is full yet."""
    if state.count("windows") == 0:
        return None
    value, low, high = state.figures[:3].tolist()
    refusal = _REFUSALS[state.count("refusal")]
    return AccuracyEstimate(
        quantity=params.quantity,
        value=value,
        low=low,
        high=high,
        expected=params.expected,
        refusal=refusal,
        reason=_reason(params, refusal, state.figures),
        rows=state.count("last_rows"),
        windows=state.count("windows"),
    )


def rebaseline(params: AccuracyParams, state: AccuracyState) -> AccuracyState:
    """After an activation: every window is refused.

    The reference tells of the mistakes of the bundle's own weights; nobody has measured those of others.
    """
    fresh = AccuracyState.start(params)
    fresh.counts[_COUNTS.index("others")] = 1
    return fresh


def _closed(params: AccuracyParams, state: AccuracyState) -> AccuracyState:
    rows, _, _, windows, held, quiet = state.counts[:6].tolist()
    others = state.count("others")
    found = Judgement("other-weights") if others else _judged(params, state)
    quiet = quiet + 1 if found.misfit <= params.changed_limit and found.refusal == "" else 0
    held = int(found.refusal in _HOLDING or (held and quiet < QUIET_WINDOWS))
    if held and found.refusal == "":
        found = replace(found, refusal="held", value=np.nan, low=np.nan, high=np.nan)
    counts = np.array([0, 0, 0, windows + 1, held, quiet, _REFUSALS.index(found.refusal), rows, others], np.int64)
    figures = np.array([getattr(found, name) for name in _FIGURES])
    nothing = np.zeros_like(state.totals)
    return AccuracyState(nothing, counts, figures, nothing, np.zeros(_SUMMED, np.int64))


def _judged(params: AccuracyParams, state: AccuracyState) -> Judgement:
    """The window, unless something changes within it: its halves are further apart than a window like the reference is
    from the reference. What sets in within a window is in the whole of it thinned by what came before."""
    found = judge(params, Sums(state.totals, *state.counts[:_SUMMED].tolist()))
    early = Sums(state.early, *state.early_counts.tolist())
    later = Sums(state.totals - state.early, *(state.counts[:_SUMMED] - state.early_counts).tolist())
    if found.refusal == "" and min(early.rows, later.rows) > 0 and apart(params, early, later) > params.passing_limit:
        return replace(found, refusal="passing", value=np.nan, low=np.nan, high=np.nan)
    return found


def _finding(params: AccuracyParams, state: AccuracyState) -> Finding:
    value, low, high = state.figures[:3].tolist()
    known = math.isfinite(value)
    fall = params.expected - high if params.quantity == "accuracy" else low - params.expected
    return Finding(
        statistic=float(fall) if known else 0.0,
        threshold=params.tolerated_fall,
        warning_threshold=min(params.warned_fall, params.tolerated_fall),
        attributions=(Attribution(params.quantity, params.expected, value),) if known else (),
        rows=state.count("last_rows"),
    )


def _reason(params: AccuracyParams, refusal: Refusal, figures: NDArray[np.float64]) -> str:
    found = Judgement(refusal, *figures.tolist())
    away = f"{found.misfit:.1f} times as far from the reference as chance puts it"
    reasons: dict[Refusal, str] = {
        "": "",
        "too-few": "too few rows of the window can be judged",
        "not-finite": "more than a tenth of the rows have inputs or outputs that are not finite or known to be broken",
        "support": "more than a tenth of the rows lie outside of what the reference has seen",
        "weights": f"the window looks like {found.speaking:.0f} of the reference's {len(params.rows)} rows only",
        "unlike": "however the reference is weighed, it does not spread as the window does: some inputs vary otherwise",
        "new-class": f"the window is {away}, and of class {', '.join(map(str, params.absent[:5]))} it has no rows",
        "class-mix": f"the shares of the classes seem to have moved by {found.moved:.2f}; then it is {found.other:.3f}",
        "passing": "something changes within the window: its halves are further apart than chance puts them",
        "held": f"an earlier window was refused, and this one is still {away}",
        "other-weights": "the reference was served by the bundle's own weights, which are not the active ones",
    }
    return reasons[refusal]


def _rows(batch: Observed, chosen: NDArray[np.bool_]) -> Observed:
    return Observed(
        [batch.ids[row] for row in np.flatnonzero(chosen)],
        batch.times_s[chosen],
        batch.features[chosen],
        batch.outputs[chosen],
        None if batch.embeddings is None else batch.embeddings[chosen],
    )
