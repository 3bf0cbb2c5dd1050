"""The estimate's part of a bundle's build: from labelled reference rows to :class:`AccuracyParams`."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.accuracy.class_mix import misfit
from edge_agent.drift.accuracy.neighbours import ORDERED_ROWS, halves_limit, inflations
from edge_agent.drift.accuracy.params import NEVER, AccuracyParams, design_of
from edge_agent.drift.accuracy.signals import SignalMap, Signals, usable_rows
from edge_agent.drift.accuracy.weighing import chance, fit_chance, fit_level, level
from edge_agent.drift.calibration import REGRESSION_CLIP_QUANTILE
from edge_agent.drift.losses import sample_right
from edge_agent.drift.observed import Observed
from edge_agent.drift.reference import Reference
from edge_agent.errors import DataError

Floats = NDArray[np.float64]

LEAST_REFERENCE_ROWS = 500
REFERENCE_ROWS_CAP = 4000
WINDOW_ROWS = 500
STEP_BATCHES, STEP_VALUES = 4, 2**16
FOLDS = 10
WARNED_FALL, WARNED_RISE = 0.05, 0.25
"""A sure fall of the accuracy by so much, or a sure rise of the loss by this share of it, is worth a warning."""
_RIDGE = 3.0
_WITHIN_FLOOR = 0.05
_STEP_FLOOR = 1e-3
TARGET_FIFTHS = 5
_NULL_WINDOWS, _NULL_QUANTILE, _NULL_MARGIN, _LEAST_LIMIT = 400, 0.99, 1.25, 1.8


def step_rows(batch_size: int, columns: int, window: int = WINDOW_ROWS) -> int:
    """Rows a step that cost least a row: up to four batches, where a window has a whole number of them.

    Figures come at windows' ends, so nothing is later by that; rows that wait for a step are lost at a kill, and held
    in memory: no more wait than have ``STEP_VALUES`` numbers.

    Args:
        batch_size: rows a batch of the other monitors.
        columns: numbers a row, of features, outputs and embeddings.
    """
    batches = -(-window // batch_size)
    room = min(STEP_BATCHES, STEP_VALUES // (batch_size * max(1, columns)))
    return batch_size * max((many for many in range(2, room + 1) if batches % many == 0), default=1)


def calibrate_accuracy(
    reference: Reference, *, batch_size: int, rng: "np.random.Generator", window: int = WINDOW_ROWS
) -> AccuracyParams:
    """What a gateway needs to estimate its accuracy (its mean clipped loss).

    Args:
        reference: held-out rows; those with a number that is not finite are left out, and of more than 4000 as many
            are taken at even steps.
        batch_size: rows a step.
        rng: draws the folds and the windows that say how far an unchanged window lies from the reference.
        window: rows a figure; rounded up to whole batches.

    Raises:
        DataError: fewer than 500 usable rows.

    Cost: seconds at most: a decomposition of (n, columns), eleven regressions, 400 drawn windows.
    """
    observed, labels, targets, clip = _usable(reference)
    signal_map = SignalMap.fit(observed, labels, reference.classes)
    seen, _ = signal_map.signals(observed)
    signals, shares, own = seen
    whole = -(-window // batch_size) * batch_size
    coefficients, residuals = _own_chance(signals, targets, clip == 1.0 and reference.classes is not None, rng)
    nothing = np.zeros(0)
    params = AccuracyParams(
        quantity="loss" if reference.classes is None else "accuracy",
        batch_size=batch_size,
        window=whole,
        expected=float(targets.mean()),
        changed_limit=NEVER,
        passing_limit=NEVER,
        clip=clip,
        tolerated_fall=NEVER,
        warned_fall=WARNED_FALL if reference.classes is not None else WARNED_RISE * float(targets.mean()),
        map=signal_map,
        coefficients=coefficients,
        middle=nothing,
        width=nothing,
        rows=nothing,
        own=own.astype(np.float32).astype(np.float64),
        residuals=residuals.astype(np.float32).astype(np.float64),
        first=nothing,
        means=nothing,
        levels=nothing,
        counts=nothing,
        inverse=nothing,
        absent=np.zeros(0, np.int64),
        inflations=nothing,
    )
    functions = params.functions(seen)
    params = _compared(params, functions, signals.shape[1] + shares.shape[1] + 1)
    params = _by_class(params, functions, _kinds(labels, reference.classes), targets, reference.classes)
    params = replace(params, changed_limit=_changed_limit(params, functions, rng))
    return _in_order(params, reference, seen)


def _in_order(params: AccuracyParams, reference: Reference, seen: Signals) -> AccuracyParams:
    """With what the order of the rows says; of the ones that were taken, where those are all."""
    kept = _usable_rows(reference)
    if len(kept) > len(seen.signals):
        seen, _ = params.map.signals(_taken(reference.observed, kept[:ORDERED_ROWS]))
    limit = halves_limit(params.inverse, (params.functions(seen) - params.middle) / params.width, params.window)
    squared = inflations(seen.signals, seen.own)
    return replace(params, passing_limit=max(params.changed_limit, limit), inflations=squared)


def _usable_rows(reference: Reference) -> NDArray[np.int64]:
    observed, labels, losses = reference.observed, np.asarray(reference.labels), reference.losses
    usable = usable_rows(observed)
    finite = np.isfinite(losses) & np.isfinite(labels)
    finite = finite if usable is None else finite & usable
    if reference.classes is not None:
        finite &= (labels >= 0) & (labels < reference.classes)
    return np.flatnonzero(finite)


def _usable(reference: Reference) -> tuple[Observed, NDArray[Any], Floats, float]:
    labels, losses = np.asarray(reference.labels), reference.losses
    kept = _usable_rows(reference)
    if len(kept) < LEAST_REFERENCE_ROWS:
        hint = f"give at least {LEAST_REFERENCE_ROWS} held-out rows, or build without the estimate"
        raise DataError(f"accuracy: {len(kept)} usable calibration rows are too few to estimate from", hint)
    kept = kept[np.unique(np.linspace(0, len(kept) - 1, min(len(kept), REFERENCE_ROWS_CAP)).astype(int))]
    taken = _taken(reference.observed, kept)
    if reference.classes is not None:
        right = sample_right("classification", taken.outputs, labels[kept])
        return taken, labels[kept], right.astype(np.float64), 1.0
    clip = max(float(np.quantile(losses[kept], REGRESSION_CLIP_QUANTILE)), 1e-12)
    return taken, labels[kept], np.minimum(losses[kept], clip), clip


def _taken(observed: Observed, rows: NDArray[np.int64]) -> Observed:
    embeddings = None if observed.embeddings is None else observed.embeddings[rows]
    return Observed(
        [observed.ids[row] for row in rows],
        observed.times_s[rows],
        observed.features[rows],
        observed.outputs[rows],
        embeddings,
    )


def _own_chance(signals: Floats, targets: Floats, binary: bool, rng: "np.random.Generator") -> tuple[Floats, Floats]:
    """Coefficients from all rows, and each row's residual from those of the other nine tenths."""
    fit, expect = (fit_chance, chance) if binary else (fit_level, level)
    design = design_of(signals)
    folds = rng.permutation(len(targets)) % FOLDS
    residuals = np.zeros(len(targets))
    for fold in range(FOLDS):
        mine = folds == fold
        residuals[mine] = targets[mine] - expect(design[mine], fit(design[~mine], targets[~mine], _RIDGE))
    return fit(design, targets, _RIDGE), residuals


def _compared(params: AccuracyParams, functions: Floats, balanced: int) -> AccuracyParams:
    """Standardised functions; steps that hardly vary are not blown up."""
    middle, width = functions.mean(axis=0), np.sqrt(functions.var(axis=0) + _STEP_FLOOR)
    rows = ((functions[:, :balanced] - middle[:balanced]) / width[:balanced]).astype(np.float32).astype(np.float64)
    noise = 1.0 / params.window + 1.0 / len(rows)
    first = np.asarray(np.linalg.inv(rows.T @ rows / len(rows) + noise * np.eye(balanced)), np.float64)
    return replace(params, middle=middle, width=width, rows=rows, first=first)


def _kinds(labels: NDArray[Any], classes: int | None) -> NDArray[np.int64]:
    """Classes; of a regression, fifths of the targets."""
    if classes is not None:
        return labels.astype(np.int64)
    borders = np.quantile(labels, np.arange(1, TARGET_FIFTHS) / TARGET_FIFTHS)
    return np.searchsorted(borders, labels, side="right").astype(np.int64)


def _by_class(
    params: AccuracyParams, functions: Floats, kinds: NDArray[np.int64], targets: Floats, classes: int | None
) -> AccuracyParams:
    scaled = (functions - params.middle) / params.width
    counts = np.bincount(kinds, minlength=classes or TARGET_FIFTHS).astype(np.float64)
    present = np.flatnonzero(counts)
    means = np.array([scaled[kinds == kind].mean(axis=0) for kind in present])
    levels = np.array([(targets[kinds == kind].sum() + params.expected) / (counts[kind] + 1) for kind in present])
    away = scaled - means[np.searchsorted(present, kinds)]
    within = away.T @ away / len(scaled) + _WITHIN_FLOOR * np.eye(scaled.shape[1])
    absent = np.flatnonzero(counts[: classes or 0] <= 1).astype(np.int64)
    inverse = np.linalg.inv(within).astype(np.float32).astype(np.float64)
    return replace(params, means=means, levels=levels, counts=counts[present], inverse=inverse, absent=absent)


def _changed_limit(params: AccuracyParams, functions: Floats, rng: "np.random.Generator") -> float:
    """Above what 99 % of windows of the reference's own rows lie below, with a margin."""
    scaled = (functions - params.middle) / params.width
    draws = rng.integers(0, len(scaled), (_NULL_WINDOWS, params.window))
    found = [misfit(params.inverse, scaled[draw].mean(axis=0), 1.0 / params.window) for draw in draws]
    return max(_LEAST_LIMIT, _NULL_MARGIN * float(np.quantile(found, _NULL_QUANTILE)))
