"""Since when a stream has changed, what changed in it, and what kind of change that is."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.finding import Attribution, Finding, ShiftKind
from edge_agent.drift.unlabelled.culprits import MOST, Culprit, Moved, culprits
from edge_agent.drift.unlabelled.filters import LEVELS, MEMORIES, VIEWS
from edge_agent.drift.unlabelled.history import History
from edge_agent.drift.unlabelled.kinds import EXPLAINED_LEAST, MOVED_LEAST, moved_shares

if TYPE_CHECKING:
    from edge_agent.drift.unlabelled.params import LabelFreeParams

_CLASSES_NAMED = 4
_ANSWERS_NAMED = 4
_SMALL = 3.0  # columns that changed less than a third of the most changed one do not date the change


@dataclass(frozen=True, slots=True)
class Standing:
    """What the batch is compared with.

    Attributes:
        latest: (n, c) the batch's normal scores less their level; what is missing 0.
        spread: (c,) the batch's deviations of the channels, in their units.
        level, per_deviation: (columns + directions,) and (columns,), of the reference or learnt from the stream.
        own: the inputs' level was learnt: the reference's classes explain nothing any more.
    """

    latest: NDArray[np.float64]
    spread: NDArray[np.float64]
    level: NDArray[np.float32]
    per_deviation: NDArray[np.float32]
    own: bool


def explain(
    params: "LabelFreeParams",
    history: History,
    standing: Standing,
    evidence: NDArray[np.float32],
    said: Finding,
) -> Finding:
    """The finding of a batch at which the monitor warns.

    Args:
        history: with this batch.
        evidence: (statistics,) of this batch.
        said: the finding so far.

    Cost: O(history x columns + n channels^2).
    """
    kept, weights = history.rows()
    batches = _since(kept[:, : params.scoring.columns], weights, _memory(params, evidence))
    seen = float(weights[:batches].sum()) * params.batch_size
    # the oldest of several averages may be partly from before
    certain = batches - 1 if batches > 1 and weights[batches - 1] > 1 else batches
    mean = np.average(kept[:certain], axis=0, weights=weights[:certain]).astype(np.float64)
    change = _Change(params, standing, mean, float(weights[:certain].sum()) * params.batch_size)
    shift, named = change.kind()
    attributions = [*named, *change.inputs(1.0 - sum(one.weight for one in named))]
    if not attributions or float((evidence * params.of_inputs).max()) <= said.warning_threshold:
        attributions = [*change.answers(), *attributions]
    return said._replace(began_samples=int(seen), shift=shift, attributions=tuple(attributions[:MOST]))


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


@dataclass(frozen=True, slots=True)
class _Change:
    """The mean (history_width,) of what was seen since the change, over ``rows`` samples."""

    params: "LabelFreeParams"
    standing: Standing
    mean: NDArray[np.float64]
    rows: float

    def kind(self) -> tuple[ShiftKind, list[Attribution]]:
        """Which kind of shift; of a label shift, the classes whose shares changed most."""
        params, inputs = self.params, self.params.scoring.inputs
        change = self.mean[:inputs]
        noise = float(params.inflation[:inputs].sum()) / self.rows
        if float(change @ change) <= 2.0 * noise:
            return "unknown", []
        if self.standing.own or len(params.class_levels) == 0:
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

    def inputs(self, weight: float) -> list[Attribution]:
        """Features, of a window's sensor the most changed of its three channels; ``weight`` is what they share."""
        found = culprits(self._moved())
        total = sum(culprit.gain for culprit in found)
        named: dict[str, Attribution] = {}
        for culprit in found:
            told = self._attribution(culprit, weight * culprit.gain / total)
            known = named.get(told.name)
            named[told.name] = told if known is None else replace(known, weight=known.weight + told.weight)
        return sorted(named.values(), key=lambda one: -one.weight)

    def _moved(self) -> Moved:
        scoring = self.params.scoring
        _, one, two, three, four = scoring.starts[:5]
        deviation = 1.0 / self.standing.per_deviation.astype(np.float64)
        moved = self.mean[: scoring.columns] * deviation
        return Moved(
            location=moved[:one],
            square=moved[three:four],
            rows=self.rows,
            latest=self.standing.latest,
            precision=scoring.precision,
            deviation=deviation[two:three],
            square_deviation=deviation[three:four],
        )

    def _attribution(self, culprit: Culprit, weight: float) -> Attribution:
        params, intake = self.params, self.params.scoring.intake
        away = float(self.mean[params.scoring.columns + culprit.channel])
        name, unit = intake.names[culprit.channel], intake.units[culprit.channel]
        level = float(params.channel_level[culprit.channel])
        if culprit.level_gain >= culprit.spread_gain:
            return Attribution(name, level, level + away, unit, weight)
        spread = float(params.channel_spread[culprit.channel])
        return Attribution(name, spread, float(self.standing.spread[culprit.channel]), unit, weight, "spread")

    def answers(self) -> list[Attribution]:
        """Class shares and the model's certainty, where the inputs themselves say little."""
        starts = self.params.scoring.starts
        deviation = 1.0 / self.standing.per_deviation
        moved = np.square(self.mean[starts[4] : starts[9]])
        weights = moved / (float(moved.sum()) or 1.0)
        found = []
        for column in starts[6] + np.argsort(-moved[starts[6] - starts[4] : starts[7] - starts[4]])[:2]:
            before = float(self.standing.level[column])
            now, weight = before + float(self.mean[column] * deviation[column]), float(weights[column - starts[4]])
            found.append(Attribution(f"predicted share {column - starts[6]}", before, now, "", weight, "share"))
        for place, name in enumerate(self.params.scoring.answer_names):
            level = float(self.mean[starts[4] + place] * deviation[starts[4] + place])
            found.append(Attribution(name, 0.0, level, "deviations", float(weights[place])))
        return sorted(found, key=lambda one: -one.weight)[:_ANSWERS_NAMED]
