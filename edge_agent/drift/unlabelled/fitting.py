"""From a bundle's reference to everything about the label-free monitor but its threshold."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.promise.blocks import Blocks, dependence
from edge_agent.drift.reference import Reference
from edge_agent.drift.unlabelled.answers import certainty, value_places
from edge_agent.drift.unlabelled.combination import Scale
from edge_agent.drift.unlabelled.filters import VIEWS
from edge_agent.drift.unlabelled.intake import Intake
from edge_agent.drift.unlabelled.normal_scores import SCORE_CAP, ScoreTable
from edge_agent.drift.unlabelled.params import NAME, LabelFreeParams
from edge_agent.drift.unlabelled.paths import batch_means, stream_statistics
from edge_agent.drift.unlabelled.scoring import (
    CONDITIONAL_CAP,
    Scoring,
    missing_readings,
)
from edge_agent.drift.unlabelled.signals import turn_spreads
from edge_agent.drift.unlabelled.unseen import conditional, plane, unseen
from edge_agent.errors import DataError

CLASSES_TOLD_CAP = 64
_STREAMS, _BATCHES, _SETTLING = 48, 260, 100
_LEVEL_ROWS_DRAWN = 20_000
_STEADY = 1e-9  # a column of this variance is a constant
_LEAST_REACH, _LARGEST_REACH = 1.0, 1e6
_LEAST_SHARE_DEVIATION = 0.1
_WIDENED, _WIDENED_BLOCKS = np.float32(1.25), np.float32(1.6)
"""Measured, rate 0.05, four features: 2,000 independent rows keep the rate in 7 of 12 calibrations by 1, in 10 by 1.25.
Blocks lose some of what neighbours share at their ends, and there are few: 4,000 rows of AR(1) 0.6 keep it in 4 of 12
by 1.25, in 9 by 1.6; within 1.5 times in all 12 and in 11."""


@dataclass(frozen=True)
class Fitted:
    """A monitor without a threshold, and the reference's scores that it was fitted on.

    Attributes:
        params: with thresholds of infinity.
        scores: (n, columns + directions) float32, of which nothing is missing; the conditional ones as of rows that
            the precision matrix has not seen.
        blocks: how streams are drawn from the reference.
    """

    params: LabelFreeParams
    scores: NDArray[np.float32]
    blocks: Blocks

    def refitted(self, rows: NDArray[np.int64]) -> LabelFreeParams:
        """As if these rows were the reference: levels and deviations are; ranks and directions stay.

        What those would differ too is made up for by levels that differ more.
        """
        params, chosen = self.params, self.scores[rows]
        widened = _WIDENED if self.blocks.rows == 1 else _WIDENED_BLOCKS
        level, per_deviation = standardisation(params.scoring, chosen)
        signals = params.signal_vector(chosen.mean(axis=0, dtype=np.float64)).astype(np.float32)
        return replace(
            params,
            level=params.level + widened * (level - params.level),
            per_deviation=per_deviation,
            signal_level=params.signal_level + widened * (signals - params.signal_level),
        )


def fitted(reference: Reference, *, batch_size: int, rate: float, rng: "np.random.Generator") -> Fitted:
    """Fit scores, levels and the scale of evidence.

    Raises:
        DataError: fewer than two batches, or no features.

    Cost: O(n (log n x channels + channels^2)); the scale 12,000 resampled batches.
    """
    observed = reference.observed
    if len(reference) < 2 * batch_size:
        raise DataError(
            f"{NAME}: {len(reference)} reference rows cannot calibrate batches of {batch_size}",
            f"give at least {2 * batch_size} rows, or a smaller batch size",
        )
    scoring, channels, residue = _scoring(reference)
    scored = scoring(observed)
    scores = unseen(scoring, scored.scores, residue)
    scores = np.where(np.isnan(scores), _moments(scores)[0].astype(np.float32), scores)
    level, per_deviation = standardisation(scoring, scores)
    inflation = np.array([dependence(column).inflation for column in scores[:, : scoring.columns].T], np.float32)
    judged = (scores[:, : scoring.columns] - level) * per_deviation
    class_levels, class_shares = _classes(reference, scoring, judged[:, : scoring.inputs])
    channel_level, channel_spread = _moments(channels)
    nothing = np.ones(0, np.float32)
    params = LabelFreeParams(
        scoring=scoring,
        batch_size=batch_size,
        threshold=np.inf,
        warning_threshold=np.inf,
        false_alarm_rate=rate,
        level=level,
        per_deviation=per_deviation,
        inflation=inflation,
        level_rows=len(reference),
        signal_level=np.zeros(0, np.float32),
        turn_spread=np.zeros(0),
        scale=Scale(nothing, nothing, nothing, nothing, nothing),
        channel_level=channel_level,
        channel_spread=channel_spread,
        class_levels=class_levels,
        class_shares=class_shares,
    )
    mean, variance = scores.mean(axis=0, dtype=np.float64), scores.var(axis=0, dtype=np.float64)
    params = replace(
        params,
        signal_level=params.signal_vector(mean).astype(np.float32),
        turn_spread=turn_spreads(params.signal_vector(mean), params.signal_vector(variance), scoring.shares),
    )
    block = dependence(judged_series(scoring, scores)).block_rows
    whole = Fitted(params, scores, Blocks.of(len(scores), block, reference.segments))
    return replace(whole, params=replace(params, scale=_scale(whole, rng)))


def judged_series(scoring: Scoring, scores: NDArray[np.float32]) -> NDArray[np.float32]:
    """(n, k) of what the monitor judges: locations, answers, components, and the mean conditional square."""
    starts = scoring.starts
    places = np.unique(np.linspace(0, starts[1] - 1, min(64, starts[1])).astype(int))
    unusual = scores[:, starts[3] : starts[4]].mean(axis=1, keepdims=True)
    kept = (scores[:, places], unusual, scores[:, starts[4] : starts[5]], scores[:, starts[7] : starts[8]])
    return np.concatenate(kept, axis=1)


def standardisation(scoring: Scoring, scores: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The columns' levels, and one over their rows' deviations.

    A deviation counts as no less than one row at the column's largest possible value would give it, so that what
    never happened in n rows may happen about once in n; that of a class share as no less than 0.1, since a single
    sample of a rare class would otherwise outweigh all others.
    """
    judged = scores[:, : scoring.columns]
    level = judged.mean(axis=0, dtype=np.float64)
    least = largest_values(scoring) / np.sqrt(len(scores))
    shares = slice(scoring.starts[6], scoring.starts[7])
    least[shares] = np.maximum(least[shares], _LEAST_SHARE_DEVIATION)
    deviation = np.maximum(judged.std(axis=0, dtype=np.float64), least)
    return level.astype(np.float32), (1.0 / deviation).astype(np.float32)


def largest_values(scoring: Scoring) -> NDArray[np.float64]:
    """(columns,) about how large each part's scores can be."""
    score, left = SCORE_CAP, CONDITIONAL_CAP
    each = (score, score**2, left, left**2, score, score**2, 1.0, score, score**2)
    return np.repeat(each, np.diff(scoring.starts))


def _scoring(reference: Reference) -> tuple[Scoring, NDArray[Any], NDArray[np.float64]]:
    """The scores; the channels, (n, c); and the embeddings' residues by planes of other rows, (n, 1) or (n, 0)."""
    observed, rows = reference.observed, len(reference)
    features = observed.features.reshape(rows, -1)
    if features.shape[1] == 0:
        raise DataError("label-free: the reference's samples have no features")
    intake = Intake.of(features, reference.names, reference.units)
    missing = missing_readings(features, observed.faulty)
    channels = intake(features if missing is None else np.where(missing, 0, features), missing)
    outputs = observed.outputs.reshape(rows, -1)
    centre, basis, lengths, residue = plane(observed.embeddings, rows)
    answers = _answers(outputs, reference.classes)
    columns = np.concatenate([channels, *answers, residue], axis=1)
    tables = ScoreTable.of(columns)
    scoring = Scoring(
        intake,
        tables,
        conditional(tables, channels),
        outputs.shape[1],
        reference.classes,
        centre,
        basis,
        lengths,
        reference.said if reference.classes is None else (),
    )
    return scoring, channels, residue


def _answers(outputs: NDArray[Any], classes: int | None) -> list[NDArray[Any]]:
    if outputs.size == 0:
        return []
    with np.errstate(over="ignore", invalid="ignore"):
        if classes is None:
            return [outputs[:, value_places(outputs.shape[1])]]
        return list(certainty(outputs)[:2])


def _classes(
    reference: Reference, scoring: Scoring, standardised: NDArray[np.float32]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    classes = reference.classes
    if classes is None or classes > CLASSES_TOLD_CAP:
        return np.zeros((0, scoring.inputs), np.float32), np.zeros(0, np.float32)
    chosen = np.arange(classes)[:, None] == reference.labels.astype(np.int64)
    counts = chosen.sum(axis=1)
    levels = chosen.astype(np.float32) @ standardised / np.maximum(counts, 1)[:, None]
    return levels.astype(np.float32), (counts / max(1, int(counts.sum()))).astype(np.float32)


def _moments(channels: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    known = np.isfinite(channels)
    counts = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, channels, 0.0).sum(axis=0, dtype=np.float64) / counts
    squares = np.square(np.where(known, channels - mean, 0.0))
    return mean, np.sqrt(squares.sum(axis=0, dtype=np.float64) / counts)


def _scale(whole: Fitted, rng: "np.random.Generator") -> Scale:
    """What the statistics are on streams of the reference's blocks, whose level is known no better than a reference of
    this size tells it."""
    params = whole.params
    means = batch_means(whole.scores, whole.blocks.batches(_STREAMS, _BATCHES, params.batch_size, rng))
    levels = _drawn_levels(whole, rng)
    found = [
        statistics for number, statistics in enumerate(stream_statistics(params, means, levels)) if number >= _SETTLING
    ]
    return Scale.of(np.concatenate(found), _reach(whole))


def _reach(whole: Fitted) -> NDArray[np.float32]:
    """(statistics,) half the degrees of freedom with which the reference tells the variance of the least known column
    of each: all its rows for normal and independent ones, its batches where rows depend on each other, and fewer where
    squares vary more, or last.

    Source: a variance from m normal values has m degrees of freedom, and the relative variance 2 / m; so from what has
        the relative variance v of its mean square, 2 / v (Satterthwaite 1946).
    """
    params = whole.params
    judged = (whole.scores[:, : params.scoring.columns] - params.level) * params.per_deviation
    squares = np.square(judged, dtype=np.float64)
    varied = squares.var(axis=0) * params.inflation
    pieces = len(judged) / min(params.batch_size, whole.blocks.rows)
    freedom = 2.0 * np.square(squares.mean(axis=0)) / np.maximum(varied, 1e-12) * pieces
    freedom[varied < _STEADY] = np.inf
    groups = params.groups
    parts = np.minimum.reduceat(freedom, groups.borders)
    view = np.concatenate([parts, parts, [freedom[: params.scoring.starts[1]].min()]])
    every = np.concatenate([np.tile(view, len(VIEWS)), np.full(params.signals, freedom.min())])
    return np.clip(0.5 * every, _LEAST_REACH, _LARGEST_REACH).astype(np.float32)


def _drawn_levels(whole: Fitted, rng: "np.random.Generator") -> NDArray[np.float32]:
    """(streams, columns + directions) levels as other references of this size would have them."""
    rows = len(whole.scores)
    drawn = min(rows, _LEVEL_ROWS_DRAWN)
    mean = whole.scores.mean(axis=0, dtype=np.float64)
    index = whole.blocks.streams(_STREAMS, drawn, rng)
    others = np.array([whole.scores.take(chosen, axis=0).mean(axis=0, dtype=np.float64) for chosen in index])
    return np.asarray(mean + (others - mean) * np.sqrt(drawn / rows), np.float32)
