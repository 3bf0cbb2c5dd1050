"""Since when a stream has changed, what changed in it, and what kind of change that is."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.finding import Attribution, Finding, ShiftKind
from edge_agent.drift.unlabelled.culprits import MOST, Moved, culprits
from edge_agent.drift.unlabelled.filters import LEVELS, MEMORIES, VIEWS
from edge_agent.drift.unlabelled.history import History
from edge_agent.drift.unlabelled.kinds import EXPLAINED_LEAST, MOVED_LEAST, moved_shares

if TYPE_CHECKING:
    from edge_agent.drift.unlabelled.params import LabelFreeParams

_CLASSES_NAMED = 4
_SMALL = 3.0  # columns that changed less than a third of the most changed one do not date the change


def explain(
    params: "LabelFreeParams",
    history: History,
    latest: NDArray[np.float64],
    evidence: NDArray[np.float32],
    statistic: float,
    *,
    own: bool,
) -> Finding:
    """The finding of a batch at which the monitor warns.

    Args:
        history: with this batch.
        latest: (n, c) the batch's normal scores less their level; what is missing 0.
        evidence: (statistics,) of this batch.
        own: the inputs' level was learnt from the stream: the reference's classes explain nothing any more.

    Cost: O(history x columns + 8 channels^2).
    """
    kept, weights = history.rows()
    batches = _since(kept[:, : params.scoring.columns], weights, _memory(params, evidence))
    mean = np.average(kept[:batches], axis=0, weights=weights[:batches]).astype(np.float64)
    seen = float(weights[:batches].sum()) * params.batch_size
    shift, named = _kind(params, mean, seen, own=own)
    attributions = [*named, *_inputs(params, mean, seen, latest, 1.0 - sum(one.weight for one in named))]
    if not attributions or float((evidence * params.of_inputs).max()) <= params.warning_threshold:
        attributions = [*_answers(params, mean), *attributions]
    return Finding(
        statistic,
        params.threshold,
        params.warning_threshold,
        began_samples=int(seen),
        shift=shift,
        attributions=tuple(attributions[:MOST]),
    )


def _memory(params: "LabelFreeParams", evidence: NDArray[np.float32]) -> float:
    """Batches that the strongest evidence looks back."""
    view = int(np.argmax(evidence)) // params.groups.count
    if view >= len(VIEWS):
        return 1.0
    return float(MEMORIES[view if view < LEVELS else view - LEVELS])


def _since(rows: NDArray[np.float32], weights: NDArray[np.float32], memory: float) -> int:
    """How many of the newest rows lie after the change: where a step along the present change fits best."""
    total = np.cumsum(weights)
    recent = int(np.searchsorted(total, memory)) + 1
    direction = np.average(rows[:recent], axis=0, weights=weights[:recent])
    direction[np.abs(direction) < np.abs(direction).max() / _SMALL] = 0.0
    along = np.cumsum(weights * (rows @ direction))
    return int(np.argmax(along / np.sqrt(total))) + 1


def _kind(
    params: "LabelFreeParams", mean: NDArray[np.float64], seen: float, *, own: bool
) -> tuple[ShiftKind, list[Attribution]]:
    inputs = params.scoring.inputs
    change = mean[:inputs]
    noise = float(params.inflation[:inputs].sum()) / seen
    if float(change @ change) <= 2.0 * noise:
        return "unknown", []
    if own or len(params.class_levels) == 0:
        return "covariate", []
    before = params.class_shares.astype(np.float64)
    now, explained = moved_shares(change, params.class_levels.astype(np.float64), before, noise)
    if explained < EXPLAINED_LEAST or 0.5 * float(np.abs(now - before).sum()) < MOVED_LEAST:
        return "covariate", []
    moved = np.square(now - before)
    chosen = np.argsort(-moved)[:_CLASSES_NAMED]
    parts = explained * moved / moved.sum()
    return "label", [
        Attribution(f"class {c}", float(before[c]), float(now[c]), "", float(parts[c]), "share") for c in chosen
    ]


def _inputs(
    params: "LabelFreeParams", mean: NDArray[np.float64], seen: float, latest: NDArray[np.float64], weight: float
) -> list[Attribution]:
    """Features, a window's sensors by the most changed of their three channels; ``weight`` is what they share."""
    scoring, intake = params.scoring, params.scoring.intake
    _, one, two, three, four = scoring.starts[:5]
    moved = mean[: scoring.columns] / params.per_deviation
    deviation = 1.0 / params.per_deviation.astype(np.float64)
    found = culprits(
        Moved(
            location=moved[:one],
            square=moved[three:four],
            rows=seen,
            latest=latest,
            precision=scoring.precision,
            deviation=deviation[two:three],
            square_deviation=deviation[three:four],
        )
    )
    total = sum(culprit.gain for culprit in found)
    named: dict[str, Attribution] = {}
    for culprit in found:
        channel, share = culprit.channel, weight * culprit.gain / total
        name, known = intake.names[channel], None
        known = named.get(name)
        if known is not None:
            share += known.weight
        away = mean[scoring.columns + channel]
        square = mean[scoring.columns + intake.channels + channel]
        before, spread = params.channel_level[channel], params.channel_spread[channel]
        if known is not None:
            named[name] = Attribution(name, known.before, known.now, known.unit, share, known.measure)
        elif culprit.level_gain >= culprit.spread_gain:
            named[name] = Attribution(name, float(before), float(before + away), intake.units[channel], share)
        else:
            now = float(np.sqrt(max(0.0, square - away**2)))
            named[name] = Attribution(name, float(spread), now, intake.units[channel], share, "spread")
    return sorted(named.values(), key=lambda one: -one.weight)


def _answers(params: "LabelFreeParams", mean: NDArray[np.float64]) -> list[Attribution]:
    """Class shares and the model's certainty, where the inputs themselves say little."""
    starts = params.scoring.starts
    shares = slice(starts[6], starts[7])
    now = params.level[shares] + mean[shares] / params.per_deviation[shares]
    moved = np.square(mean[shares])
    chosen = np.argsort(-moved)[: _CLASSES_NAMED // 2]
    total = float(np.square(mean[starts[4] : starts[9]]).sum()) or 1.0
    found = [
        Attribution(
            f"predicted share {c}",
            float(params.level[starts[6] + c]),
            float(now[c]),
            "",
            float(moved[c]) / total,
            "share",
        )
        for c in chosen
    ]
    for place, name in enumerate(params.scoring.answer_names):
        column = starts[4] + place
        level = float(mean[column] / params.per_deviation[column])
        found.append(Attribution(name, 0.0, level, "deviations", float(mean[column] ** 2) / total))
    return sorted(found, key=lambda one: -one.weight)[:_CLASSES_NAMED]
