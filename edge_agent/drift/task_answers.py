"""What the models of several tasks say, in numbers that mean the same of each: by its own task's reference.

Outputs of different tasks cannot be pooled: they have other classes and other certainties. What can is how unusual an
answer is *for its task*. Each sample becomes six normal scores, by the ranks of its own task's reference, so that
whatever tasks the samples of a batch are of, and in whatever shares, their levels and deviations are what they were.
The label-free monitor judges these as it judges a regression's values, beside the inputs: one statistic, one threshold,
one promised rate for all of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.unlabelled.answers import certainty
from edge_agent.drift.unlabelled.normal_scores import KNOTS, ScoreTable
from edge_agent.errors import DataError

WIDTH = 6
"""Numbers a sample: margin, energy, four contrasts of the class probabilities; of a regression its values, in turn."""
CONTRASTS = 4
NAMES = (
    "certainty for its task",
    "energy for its task",
    *(f"mix of classes for its task, contrast {number + 1}" for number in range(CONTRASTS)),
)
"""What the six are called in attributions."""
LEAST_ROWS = 100
"""Reference rows below which a task's answers are not judged."""
VALUES, SCORES = "task_values", "task_scores"


@dataclass(frozen=True)
class TaskAnswers:
    """How usual the answers of each task are.

    Attributes:
        values, scores: (tasks, 6, 67) knots and normal scores, as a `ScoreTable` has them; NaN where a task's reference
            was too short: its answers are not judged.
        classes: of each task; None: a regression.
    """

    values: NDArray[np.float64]
    scores: NDArray[np.float32]
    classes: tuple[int | None, ...]

    @classmethod
    def of(cls, outputs: Sequence[NDArray[Any]], classes: Sequence[int | None]) -> Self:
        """From each task's reference outputs, (n, ...).

        Cost: O(n log n) a task.
        """
        values = np.full((len(outputs), WIDTH, KNOTS), np.nan)
        scores = np.full(values.shape, np.nan, np.float32)
        for place, (said, many) in enumerate(zip(outputs, classes, strict=True)):
            if len(said) >= LEAST_ROWS:
                table = ScoreTable.of(_said(said, many))
                values[place], scores[place] = table.values, table.scores
        return cls(values, scores, tuple(classes))

    def __call__(self, task: int, outputs: NDArray[Any]) -> NDArray[np.float32]:
        """(n, 6) scores of a task's outputs; NaN where they are not finite, or the task is not judged.

        Args:
            task: its place.

        Cost: O(n classes).
        """
        if not self.judges(task):
            return np.full((len(outputs), WIDTH), np.nan, np.float32)
        with np.errstate(over="ignore", invalid="ignore"):
            return self._tables[task](_said(outputs, self.classes[task]))

    def judges(self, task: int) -> bool:
        """Whether a task's reference was long enough."""
        return bool(np.isfinite(self.values[task, 0, 0]))

    @cached_property
    def _tables(self) -> list[ScoreTable]:
        return [ScoreTable(values, scores) for values, scores in zip(self.values, self.scores, strict=True)]

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """For ``drift.safetensors``, beside the label-free monitor's own."""
        return {VALUES: self.values, SCORES: self.scores}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], classes: Sequence[int | None]) -> Self | None:
        """From :meth:`to_arrays`; None: the bundle has none.

        Raises:
            DataError: they are of other tasks than these.
        """
        if VALUES not in arrays:
            return None
        shape = (len(classes), WIDTH, KNOTS)
        for name in (VALUES, SCORES):
            if name not in arrays or arrays[name].shape != shape:
                raise DataError(f"monitor label-free: array {name!r} does not fit the tasks", "build the bundle again")
        return cls(np.asarray(arrays[VALUES], np.float64), np.asarray(arrays[SCORES], np.float32), tuple(classes))


def _said(outputs: NDArray[Any], classes: int | None) -> NDArray[np.float64]:
    """(n, 6) of a task's outputs, not scored yet."""
    flat = outputs.reshape(len(outputs), -1).astype(np.float32)
    if classes is None:
        return flat[:, np.arange(WIDTH) % max(1, flat.shape[1])].astype(np.float64)
    margin, energy, shares = certainty(flat)
    many = shares.shape[1]
    turns = np.arange(CONTRASTS) % max(1, many - 1) + 1
    contrasts = np.cos(np.pi * (np.arange(many)[:, None] + 0.5) * turns / many)
    return np.concatenate([margin, energy, shares @ contrasts], axis=1, dtype=np.float64)
