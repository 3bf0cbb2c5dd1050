"""Which labels have come, how late, and whether the labelled samples look like the served ones; fixed memory.

What is kept is, of each period of serving, the samples whose ids have the smallest hashes: a fair draw of that period's
samples, whatever they are. A sample is in it once, however often it is told, and neither the order of the samples nor
that of the labels changes the draw: two streams with the same samples and labels end in the same bytes. The one order
that matters is the store's own: a label is told after the serving of its sample. The identity is the sample's id.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.id_hashes import id_hashes
from edge_agent.drift.label_shift import softmax
from edge_agent.drift.reference import Reference
from edge_agent.drift.stored_state import fitting
from edge_agent.errors import DataError
from edge_agent.wire.manifest import MonitorSpec

NAME = "arrivals"
MATURE_DEFAULT_S = 86_400.0
LEVEL_DEFAULT = 1e-3
PERIODS_PER_MATURITY = 4
PERIODS, PER_PERIOD = 12, 128
"""Kept: 12 periods, of which about 8 are old enough to be judged; 128 samples each, 36 kB in all."""
BINS = 4
CLASS_CELLS = 16
_BIN_SHARES = (0.1, 0.25, 0.5)
_NONE, _WAITING = np.uint64(2**64 - 1), np.float32(np.inf)
_LARGEST = _NONE - np.uint64(1)
_FEW = 16


@dataclass(frozen=True)
class ArrivalsParams:
    """Constants of the evidence.

    Args:
        mature_s: running seconds after which a sample should have its label; younger ones are not judged.
        level: chance of calling fair labelling biased at a look, > 0.
        classes: of a classification; None: a regression.
        edges: (3,) rising: borders of the confidence (of the value, in a regression) between the four bins.
    """

    mature_s: float
    level: float
    classes: int | None
    edges: tuple[float, ...]

    @property
    def period_s(self) -> float:
        """Running seconds of a period."""
        return self.mature_s / PERIODS_PER_MATURITY

    @property
    def class_cells(self) -> int:
        """Predicted classes that are told apart; more than 16 share 16 by their number modulo 16."""
        return 1 if self.classes is None else min(self.classes, CLASS_CELLS)

    @classmethod
    def from_spec(cls, spec: MonitorSpec, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """From the manifest's entry and its array ``edges``.

        Raises:
            DataError: a value is missing or makes no sense.
        """
        try:
            classes = int(spec.parameters["classes"])
            mature_s, level = float(spec.parameters["mature_s"]), float(spec.parameters["level"])
            edges = tuple(np.asarray(arrays["edges"], np.float64).ravel().tolist())
        except (KeyError, ValueError) as error:
            raise DataError(f"monitor {NAME}: {error} is missing or no number", "build the bundle again") from None
        if len(edges) != BINS - 1 or list(edges) != sorted(edges) or not (mature_s > 0 and 0 < level < 1):
            raise DataError(f"monitor {NAME}: its constants make no sense", "build the bundle again")
        return cls(mature_s, level, classes or None, edges)

    def to_spec(self) -> MonitorSpec:
        """The manifest's entry; the arrays are those of :meth:`to_arrays`."""
        scalars = {"mature_s": self.mature_s, "level": self.level, "classes": self.classes or 0}
        return MonitorSpec(parameters=scalars, batch_size=1, false_alarm_rate=self.level)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays of the bundle, by name."""
        return {"edges": np.array(self.edges)}


@dataclass(frozen=True)
class ArrivalsState:
    """The draw of the newest periods; sorted, so that equal draws are equal bytes.

    Attributes:
        period: (12,) int64, number of the period in each place (number modulo 12); -1: none yet.
        hashes: (12, 128) uint64, rising; 2**64 - 1: nothing.
        cells: (12, 128) int16, class cell * 4 + bin.
        delays_s: (12, 128) float32; inf: no label yet, NaN: labelled after an unknown delay.
        served_s: (12, 128) float64, running clock.
    """

    period: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    cells: NDArray[np.int16]
    delays_s: NDArray[np.float32]
    served_s: NDArray[np.float64]

    @classmethod
    def start(cls, params: ArrivalsParams) -> Self:
        """Nothing seen."""
        shape = (PERIODS, PER_PERIOD)
        return cls(
            np.full(PERIODS, -1, np.int64),
            np.full(shape, _NONE),
            np.zeros(shape, np.int16),
            np.full(shape, _WAITING),
            np.zeros(shape),
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Fixed shapes; bit-equal back by :meth:`from_arrays`."""
        names = ("period", "hashes", "cells", "delays_s", "served_s")
        return {name: np.array(getattr(self, name)) for name in names}

    @classmethod
    def from_arrays(cls, params: ArrivalsParams, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """From :meth:`to_arrays`.

        Raises:
            DataError: an array is missing or of another shape or type.
        """
        return cls(**fitting(NAME, cls.start(params).to_arrays(), arrays))


def calibrate_arrivals(
    reference: Reference, *, mature_s: float = MATURE_DEFAULT_S, level: float = LEVEL_DEFAULT
) -> ArrivalsParams:
    """Bins of the confidence (value) at the reference's 10, 25 and 50 %: labels are sought where models doubt.

    Raises:
        DataError: no row with finite outputs, or constants out of range.
    """
    signal = _signal(reference.observed.outputs, reference.classes)
    signal = signal[np.isfinite(signal)]
    if len(signal) == 0 or not (mature_s > 0 and 0 < level < 1):
        raise DataError(f"monitor {NAME}: no finite output, or constants out of range")
    edges = np.quantile(signal, _BIN_SHARES)
    return ArrivalsParams(float(mature_s), float(level), reference.classes, tuple(edges.tolist()))


def output_cells(params: ArrivalsParams, outputs: NDArray[Any]) -> NDArray[np.int16]:
    """(n,) cell of each output, (n, k) or (n,): predicted class, and bin of the confidence (or of the value).

    An output that is not finite is in the lowest bin of class 0.
    """
    signal = _signal(outputs, params.classes)
    bins = np.searchsorted(np.array(params.edges), np.where(np.isnan(signal), -np.inf, signal), side="right")
    if params.classes is None:
        return bins.astype(np.int16)
    wide = np.asarray(outputs, np.float64).reshape(len(signal), -1)
    chosen = (wide[:, 0] > 0).astype(int) if wide.shape[1] == 1 else wide.argmax(axis=1)
    chosen = np.where(np.isfinite(signal), chosen, 0)
    return ((chosen % params.class_cells) * BINS + bins).astype(np.int16)


def note_served(
    params: ArrivalsParams, state: ArrivalsState, ids: Sequence[str], served_s: NDArray[Any], cells: NDArray[Any]
) -> ArrivalsState:
    """The state after these samples were served; those that it has already, or that are too old, change nothing.

    Args:
        ids: n sample ids.
        served_s: (n,) running seconds when each was served; one that is negative or not finite is passed over.
        cells: (n,) of :func:`output_cells`.

    Cost: O(n) hashes of 0.04 us, and a sort of a period's places for those that enter it.
    """
    return _served(params, state, ids, served_s, np.asarray(cells).__getitem__)


def note_outputs(
    params: ArrivalsParams, state: ArrivalsState, ids: Sequence[str], served_s: NDArray[Any], outputs: NDArray[Any]
) -> ArrivalsState:
    """As :func:`note_served`, with the samples' outputs, (n, k) or (n,): cells are found only of those that enter."""
    return _served(params, state, ids, served_s, lambda rows: output_cells(params, outputs[rows]))


def _served(
    params: ArrivalsParams,
    state: ArrivalsState,
    ids: Sequence[str],
    served_s: NDArray[Any],
    cells_of: Callable[[NDArray[np.intp]], NDArray[Any]],
) -> ArrivalsState:
    times, hashes = np.asarray(served_s, np.float64), _hashes(ids)
    for number, rows in _by_period(times, params.period_s):
        state = _opened(state, number)
        place = number % PERIODS
        if state.period[place] == number:
            enters = hashes < state.hashes[place, -1]
            mine = np.flatnonzero(enters if rows is None else enters & rows)
            if len(mine):
                state = _entered(state, place, hashes[mine], cells_of(mine), times[mine])
    return state


def _by_period(times: NDArray[np.float64], period_s: float) -> list[tuple[int, NDArray[np.bool_] | None]]:
    """The periods that times lie in, rising, and which rows are of each; None: all."""
    if len(times) == 0:
        return []
    lowest, highest = float(np.minimum.reduce(times)), float(np.maximum.reduce(times))
    if lowest >= 0 and highest < np.inf and np.floor(lowest / period_s) == np.floor(highest / period_s):
        return [(int(np.floor(lowest / period_s)), None)]
    fair = np.isfinite(times) & (times >= 0)
    numbers = np.floor(np.where(fair, times, 0.0) / period_s).astype(np.int64)
    return [(number, fair & (numbers == number)) for number in sorted(set(numbers[fair].tolist()))]


def note_labelled(
    params: ArrivalsParams, state: ArrivalsState, ids: Sequence[str], delays_s: NDArray[Any]
) -> ArrivalsState:
    """The state after these labels came; of a label that is told twice the shorter delay stays.

    Args:
        ids: n sample ids, whose serving was told before; others are not in the draw and change nothing.
        delays_s: (n,) running seconds from serving to label; NaN: unknown.
    """
    rows, places = _drawn(state, ids)
    return _told(state, places, np.asarray(delays_s, np.float32)[rows]) if len(rows) else state


def note_labelled_at(params: ArrivalsParams, state: ArrivalsState, ids: Sequence[str], now_s: float) -> ArrivalsState:
    """As :func:`note_labelled`, of labels that came at a running time: the delays follow from what the draw holds."""
    rows, places = _drawn(state, ids)
    if len(rows) == 0:
        return state
    return _told(state, places, (now_s - state.served_s.ravel()[places]).astype(np.float32))


def _drawn(state: ArrivalsState, ids: Sequence[str]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """(k,) rows of the samples that the draw holds, and (k,) their places in it."""
    hashes, flat = _hashes(ids), state.hashes.ravel()
    last = np.where(state.period >= 0, state.hashes[:, -1], np.uint64(0))
    rows = np.flatnonzero(hashes <= np.maximum.reduce(last))  # most are above all that is held
    hashes = hashes[rows]
    if len(rows) == 0:
        return rows, rows
    if len(rows) <= _FEW:
        which, places = np.nonzero(hashes[:, None] == flat)
        if len(which) < 2 or bool((which[1:] > which[:-1]).all()):
            return rows[which], places
    order = np.argsort(flat)
    places = order[np.minimum(np.searchsorted(flat[order], hashes), flat.size - 1)]
    known = flat[places] == hashes
    return rows[known], places[known]


def _told(state: ArrivalsState, places: NDArray[np.intp], told: NDArray[np.float32]) -> ArrivalsState:
    delays = state.delays_s.ravel().copy()
    np.fmin.at(delays, places, told)
    unknown = np.isnan(told)
    if np.count_nonzero(unknown):
        places = places[unknown]
        delays[places] = np.where(np.isinf(delays[places]), np.float32(np.nan), delays[places])
    return ArrivalsState(state.period, state.hashes, state.cells, delays.reshape(state.delays_s.shape), state.served_s)


def rebaseline(params: ArrivalsParams, state: ArrivalsState) -> ArrivalsState:
    """After an activation: other weights give other confidences, so the draw begins anew."""
    return ArrivalsState.start(params)


def drawn_of(count_hashes: NDArray[np.uint64]) -> float:
    """How many samples a period had: exact below 128, else from the largest kept hash (standard error 9 %)."""
    if count_hashes[-1] == _NONE:
        return float((count_hashes != _NONE).sum())
    return (PER_PERIOD - 1) / (float(count_hashes[-1]) / 2.0**64)


def held(hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Which places hold a sample."""
    return np.asarray(hashes != _NONE)


def _opened(state: ArrivalsState, number: int) -> ArrivalsState:
    """Room for the period, unless it is too old; periods that are too old beside it leave."""
    newest = max(number, int(state.period.max()))
    if number <= newest - PERIODS or state.period[number % PERIODS] == number:
        return state
    gone = (state.period >= 0) & (state.period <= newest - PERIODS)
    fresh = {name: array.copy() for name, array in state.to_arrays().items()}
    fresh["period"][gone] = -1
    fresh["hashes"][gone], fresh["cells"][gone], fresh["delays_s"][gone] = _NONE, 0, _WAITING
    fresh["served_s"][gone] = 0.0
    fresh["period"][number % PERIODS] = number
    return ArrivalsState(**fresh)


def _entered(
    state: ArrivalsState, place: int, hashes: NDArray[Any], cells: NDArray[Any], times: NDArray[Any]
) -> ArrivalsState:
    """The period's draw with these samples: the smallest hashes, each once, the earliest serving of each."""
    every = np.concatenate([state.hashes[place], hashes])
    columns = {
        "cells": np.concatenate([state.cells[place], cells.astype(np.int16)]),
        "delays_s": np.concatenate([state.delays_s[place], np.full(len(hashes), _WAITING)]),
        "served_s": np.concatenate([state.served_s[place], times]),
    }
    order = np.argsort(every, kind="stable")
    ordered = every[order]
    if np.count_nonzero((ordered[1:] == ordered[:-1]) & (ordered[1:] != _NONE)):
        order = np.lexsort((columns["cells"], columns["served_s"], columns["delays_s"], every))
        ordered = every[order]
        repeated = np.zeros(len(every), np.bool_)
        repeated[1:] = (ordered[1:] == ordered[:-1]) & (ordered[1:] != _NONE)
        order = order[~repeated]
    chosen = order[:PER_PERIOD]
    kept = {"hashes": state.hashes.copy(), **{name: getattr(state, name).copy() for name in columns}}
    for name, column in (("hashes", every), *columns.items()):
        kept[name][place] = column[chosen]
    return ArrivalsState(state.period, **kept)


def _hashes(ids: Sequence[str]) -> NDArray[np.uint64]:
    return np.minimum(id_hashes(ids), _LARGEST)


def _signal(outputs: NDArray[Any], classes: int | None) -> NDArray[np.float64]:
    """Confidence of the chosen class, or the value."""
    if classes is None:
        values = np.asarray(outputs, np.float64).reshape(len(outputs), -1)
        return np.where(np.isfinite(values).all(axis=1), values[:, 0], np.nan)
    wide = np.asarray(outputs, np.float64).reshape(len(outputs), -1)
    if len(wide) and wide.shape[1] > 1 and np.count_nonzero(np.isfinite(wide)) == wide.size:
        powers = wide - np.maximum.reduce(wide, axis=1, keepdims=True)
        return np.asarray(1.0 / np.add.reduce(np.exp(powers), axis=1))  # the largest power is 1
    return np.asarray(softmax(wide).max(axis=1)) if len(wide) else np.zeros(0)
