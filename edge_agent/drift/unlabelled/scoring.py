"""Samples to scores: numbers whose means over a batch stay where they are as long as nothing changes."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.observed import Observed
from edge_agent.drift.products import by_batch
from edge_agent.drift.unlabelled.answers import (
    SHARES_CAP,
    answers_of,
    certainty,
    log_residue,
    share_starts,
    unit_rows,
    value_places,
)
from edge_agent.drift.unlabelled.intake import Intake
from edge_agent.drift.unlabelled.missing import completed
from edge_agent.drift.unlabelled.normal_scores import ScoreTable
from edge_agent.errors import DataError

COMPONENTS_CAP = 32
DIRECTIONS_CAP = 256
CONDITIONAL_CAP = 4.0
_COMPONENT_CAP = 4.0
_LARGEST = 1e15
_SAME_MODEL = "the bundle was calibrated for another model: build it again"


@dataclass(frozen=True)
class Scored:
    """Scores of n samples.

    Attributes:
        scores: (n, columns) float32, as :class:`Scoring` orders them; NaN where a reading is missing.
        channels: (n, c) the channels in their own units; NaN where missing.
        whole: nothing is missing.
    """

    scores: NDArray[np.float32]
    channels: NDArray[Any]
    whole: bool


@dataclass(frozen=True)
class Scoring:
    """What is fixed about the scores of a model's samples.

    The columns are, in parts: c *locations* (the channels' normal scores), c *spreads* (their squares), c *conditional*
    scores (what is left of a channel's score when all others are known, over its deviation) and their c squares; h
    *answers* (normal scores of the model's certainty and of how well the embedding lies in its usual plane) and their
    squares; k *shares* (class probabilities); m *components* of the embedding and their squares. Beyond them, not
    judged one by one, the embedding's *direction*.

    Attributes:
        intake: features to channels.
        tables: of the c channels, then the h answers.
        conditional: (c, c) float32, the precision matrix of the locations, each column over the root of its diagonal.
        outputs: values a sample; 0: outputs are not judged.
        classes: of a classification; None: a regression.
        centre: (d,) float32, the embeddings' mean; d = 0: there are none.
        basis: (d, m) float32, their main directions, of deviation 1.
        lengths: (m,) float32, the deviations before.
        said: what the values of a regression are called; empty: by their numbers.
    """

    intake: Intake
    tables: ScoreTable
    conditional: NDArray[np.float32]
    outputs: int
    classes: int | None
    centre: NDArray[np.float32]
    basis: NDArray[np.float32]
    lengths: NDArray[np.float32]
    said: tuple[str, ...] = ()

    @cached_property
    def answers(self) -> int:
        """Answers, h: margin and energy of a classification or the values of a regression; the embedding's residue."""
        return answers_of(self.outputs, self.classes) + (1 if len(self.centre) else 0)

    @cached_property
    def answer_names(self) -> tuple[str, ...]:
        """What the answers are called."""
        values = self.said or tuple(f"output[{place}]" for place in self._value_places)
        certainty = ("margin of the largest logit", "energy of the logits")
        outputs = () if not self.outputs else values if self.classes is None else certainty
        return (*outputs, *(("embedding outside its plane",) if len(self.centre) else ()))

    @cached_property
    def shares(self) -> int:
        """Class shares, k; neighbouring classes together beyond 64."""
        return min(self.classes, SHARES_CAP) if self.outputs and self.classes is not None else 0

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where each part begins, and where the last ends: parts of no column are left out by their equal borders."""
        channels, answers, components = self.intake.channels, self.answers, self.basis.shape[1]
        sizes = (channels, channels, channels, channels, answers, answers, self.shares, components, components)
        return (0, *np.cumsum(sizes).tolist())

    @property
    def columns(self) -> int:
        """Columns that are judged."""
        return self.starts[-1]

    @property
    def inputs(self) -> int:
        """Columns that new weights do not change; they come first."""
        return self.starts[4]

    @cached_property
    def directions(self) -> int:
        """Columns of the embedding's direction."""
        return min(len(self.centre), DIRECTIONS_CAP)

    @cached_property
    def precision(self) -> NDArray[np.float64]:
        """(c, c) of the locations."""
        return self.conditional.astype(np.float64) * np.diag(self.conditional)

    @cached_property
    def _length_squares(self) -> NDArray[np.float32]:
        return np.square(self.lengths)

    @cached_property
    def _share_starts(self) -> NDArray[np.int64]:
        return share_starts(self.classes or 0)

    @cached_property
    def _value_places(self) -> NDArray[np.int64]:
        return value_places(self.outputs)

    def __call__(self, seen: Observed) -> Scored:
        """The scores of n samples, (n, columns + directions).

        Raises:
            DataError: samples of another shape than the reference's.

        Cost: O(n (c^2 + d m)).
        """
        features = self._fitting(seen)
        missing = missing_readings(features, seen.faulty)
        if missing is not None:
            features = np.where(missing, 0, features)
        channels, size = self.intake(features, missing), len(features)
        said = self._said(seen, self._broken(seen), size)
        if missing is None:
            return Scored(self._scores(channels, said, size), channels, said.broken is None)
        gone = np.isnan(channels)
        judged = np.where(gone, self.tables.values[: self.intake.channels, 1], channels)
        return Scored(self._scores(judged, said, size, gone), channels, False)

    def quick(self, seen: Observed, size: int) -> Scored | None:
        """The same of samples of which nothing is missing, for less; None: something is, or that cannot be told here.

        Values that are not finite make scores or channels so, which is for the caller to notice in their means.

        Args:
            seen: batches of ``size`` samples, one after the other; each scores as it would alone, bit for bit.
        """
        features = self._fitting(seen)
        whole = seen.faulty is None and (seen.finite or self.intake.all_finite(features))
        if not whole or (self.outputs and self.classes is None and not np.isfinite(seen.outputs).all()):
            return None
        channels = self.intake(features, None)
        return Scored(self._scores(channels, self._said(seen, None, size), size), channels, True)

    def _fitting(self, seen: Observed) -> NDArray[Any]:
        """The features, (n, f).

        Raises:
            DataError: samples of another shape than the reference's.
        """
        features = seen.features if seen.features.ndim == 2 else seen.features.reshape(len(seen), -1)
        self._refuse(features, seen)
        return features

    def _scores(
        self, channels: NDArray[Any], said: "_Said", size: int, gone: NDArray[np.bool_] | None = None
    ) -> NDArray[np.float32]:
        normal = self.tables(np.concatenate((channels, *said.answers), axis=1) if said.answers else channels)
        inputs = self.intake.channels
        scores = np.empty((len(channels), self.columns + self.directions), np.float32)
        self._fill_inputs(scores, normal[:, :inputs], size, gone)
        self._fill_answers(scores, normal[:, inputs:], said)
        return scores

    def _refuse(self, features: NDArray[Any], seen: Observed) -> None:
        given = (features.shape[1], _width(seen.outputs) if self.outputs else 0, _width(seen.embeddings))
        wanted = (self.intake.features, self.outputs, len(self.centre))
        if given == wanted:
            return
        for what, have, need in zip(("features", "outputs", "embedding values"), given, wanted, strict=True):
            if have != need and (need or what == "features"):
                raise DataError(f"label-free: {have} {what} a sample, the reference has {need}", _SAME_MODEL)

    def _fill_inputs(
        self, scores: NDArray[np.float32], normal: NDArray[np.float32], size: int, missing: NDArray[np.bool_] | None
    ) -> None:
        _, one, two, three, four = self.starts[:5]
        lost: NDArray[np.float32] | float = 0.0
        full = normal
        if missing is not None:
            full, lost = completed(normal, missing, self.precision)
        left = by_batch(full, self.conditional, size)
        scores[:, :one] = normal
        np.multiply(normal, normal, out=scores[:, one:two])
        scores[:, two:three] = left
        np.minimum(left * left, CONDITIONAL_CAP**2, out=scores[:, three:four])
        if missing is not None:
            scores[:, three:four] += lost
            for start in (0, one, two, three):
                scores[:, start : start + missing.shape[1]][missing] = np.nan

    def _said(self, seen: Observed, broken: NDArray[np.bool_] | None, size: int) -> "_Said":
        columns: list[NDArray[Any]] = []
        shares = components = squares = directions = None
        if self.outputs:
            outputs = _clean(seen.outputs, broken)
            if self.classes is None:
                columns.append(outputs[:, self._value_places])
            else:
                margin, energy, shares = certainty(outputs)
                columns += (margin, energy)
        if len(self.centre):
            assert seen.embeddings is not None
            flat = _clean(seen.embeddings, broken)
            away = flat - self.centre
            components = by_batch(away, self.basis, size)
            squares = components * components
            columns.append(log_residue(away, squares, self._length_squares, size))
            directions = unit_rows(flat)
        return _Said(columns, shares, components, squares, directions, broken)

    def _broken(self, seen: Observed) -> NDArray[np.bool_] | None:
        """(n,) rows whose outputs or embeddings are not finite, or so large that squares would not be, or come from
        broken readings; None: none."""
        faulty = seen.broken_rows
        given = [seen.outputs] if self.outputs else []
        given += [seen.embeddings] if len(self.centre) and seen.embeddings is not None else []
        if all(float(np.abs(array).max(initial=0.0)) < _LARGEST for array in given):
            return faulty
        flags = [~(np.abs(array.reshape(len(array), -1)) < _LARGEST).all(axis=1) for array in given]
        return np.asarray(np.logical_or.reduce(flags if faulty is None else [*flags, faulty]))

    def _fill_answers(self, scores: NDArray[np.float32], normal: NDArray[np.float32], said: "_Said") -> None:
        _, _, _, _, four, five, six, seven, eight, nine = self.starts
        if four == nine:
            return
        scores[:, four:five] = normal
        np.multiply(normal, normal, out=scores[:, five:six])
        if said.shares is not None:
            whole = self.shares == self.classes
            scores[:, six:seven] = said.shares if whole else np.add.reduceat(said.shares, self._share_starts, axis=1)
        if said.components is not None and said.squares is not None and said.directions is not None:
            np.clip(said.components, -_COMPONENT_CAP, _COMPONENT_CAP, out=scores[:, seven:eight])
            np.minimum(said.squares, _COMPONENT_CAP**2, out=scores[:, eight:nine])
            scores[:, nine:] = said.directions[:, : self.directions]
        if said.broken is not None:
            scores[said.broken, four:] = np.nan


class _Said(NamedTuple):
    """What the model says of n samples: columns for the tables, class probabilities, components of the embeddings,
    their squares, and directions; and which rows are broken (None: none)."""

    answers: list[NDArray[Any]]
    shares: NDArray[Any] | None
    components: NDArray[Any] | None
    squares: NDArray[Any] | None
    directions: NDArray[Any] | None
    broken: NDArray[np.bool_] | None


def missing_readings(features: NDArray[Any], faulty: NDArray[np.bool_] | None) -> NDArray[np.bool_] | None:
    """(n, f) which readings are broken or not finite; None: none is."""
    finite = np.isfinite(features)
    if finite.all() and (faulty is None or not faulty.any()):
        return None
    return np.asarray(~finite if faulty is None else ~finite | faulty)


def _width(array: NDArray[Any] | None) -> int:
    return 0 if array is None else array.shape[1] if array.ndim == 2 else math.prod(array.shape[1:])


def _clean(array: NDArray[Any], broken: NDArray[np.bool_] | None) -> NDArray[np.float32]:
    """(n, values) float32, broken rows 0."""
    rows = array if array.ndim == 2 else array.reshape(len(array), -1)
    kept = rows if broken is None else np.where(broken[:, None], 0, rows)
    return kept.astype(np.float32, copy=False)
