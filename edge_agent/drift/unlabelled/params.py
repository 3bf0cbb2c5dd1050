"""What the label-free monitor of a bundle knows, and how the bundle holds it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, cast

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.observed import Columns
from edge_agent.drift.unlabelled.combination import Groups, Scale
from edge_agent.drift.unlabelled.filters import GAINS, VIEWS, view_deviations
from edge_agent.drift.unlabelled.intake import Intake, Kind, of_all
from edge_agent.drift.unlabelled.normal_scores import ScoreTable
from edge_agent.drift.unlabelled.scoring import Scoring
from edge_agent.drift.unlabelled.signals import COMPARISONS, MEMORY_GAIN, SLOW, together, turn_spreads, turns
from edge_agent.errors import DataError
from edge_agent.wire.manifest import MonitorSpec, PromiseSpec

NAME = "label-free"
LEARNING_BATCHES = 16
"""Batches on new weights from which the level of what they change is learnt."""
_AGAIN = "build the bundle again"
_LEAST_FACTOR = 0.05


@dataclass(frozen=True)
class LabelFreeParams:
    """The label-free monitor of one bundle.

    Attributes:
        scoring: samples to scores.
        batch_size: samples a batch.
        threshold, warning_threshold: of the statistic.
        false_alarm_rate: a batch, that ``threshold`` promises.
        level: (columns,) float32, the scores' means in the reference.
        per_deviation: (columns,) float32, one over their rows' deviations.
        inflation: (columns,) float32, variance of a long mean over what independent rows would give.
        level_rows: rows in the reference.
        turn_spread: (1 or 2,) float64, variance of shares, of directions, over their means' squared lengths.
        signal_level: (shares + directions,) float32, Fed-ADE's vectors in the reference.
        scale: statistics to evidence.
        channel_level, channel_spread: (c,) float64 mean and deviation of the channels, in their units.
        class_levels: (classes, inputs) float32 standardised means of each class's samples; empty: not known.
        class_shares: (classes,) float32 of the reference.
        learning_batches: batches on new weights from which their level is learnt.
    """

    scoring: Scoring
    batch_size: int
    threshold: float
    warning_threshold: float
    false_alarm_rate: float
    level: NDArray[np.float32]
    per_deviation: NDArray[np.float32]
    inflation: NDArray[np.float32]
    level_rows: int
    signal_level: NDArray[np.float32]
    turn_spread: NDArray[np.float64]
    scale: Scale
    channel_level: NDArray[np.float64]
    channel_spread: NDArray[np.float64]
    class_levels: NDArray[np.float32]
    class_shares: NDArray[np.float32]
    learning_batches: int = LEARNING_BATCHES

    @cached_property
    def groups(self) -> Groups:
        """The statistics of a view."""
        return Groups(self.scoring.starts, self.scoring.inputs)

    @cached_property
    def of_inputs(self) -> NDArray[np.float32]:
        """(statistics,) 1 for those of the inputs, 0 for the rest."""
        signals = len(self.scale.mean) - len(VIEWS) * self.groups.count
        views = np.tile(self.groups.of_inputs, len(VIEWS))
        return np.concatenate([views, np.zeros(signals, np.bool_)]).astype(np.float32)

    @cached_property
    def whole_level(self) -> NDArray[np.float32]:
        """(columns + directions,) of the reference."""
        return np.concatenate([self.level, self.signal_level[self.scoring.shares :]])

    @property
    def judges_inputs_alone(self) -> bool:
        """Neither outputs nor embeddings."""
        return not self.scoring.outputs and not len(self.scoring.centre)

    def narrowed(self, features: int) -> tuple[Columns, Self]:
        """The columns of a sample's features that are looked at, if not all are; and the same monitor of samples that
        have these alone.

        Args:
            features: of a sample. Of as many as the reference does not have, as where all are looked at, none is named.
        """
        columns = self.scoring.intake.columns
        if not columns or features != self.scoring.intake.features:
            return (), self
        return columns, replace(self, scoring=replace(self.scoring, intake=self.scoring.intake.narrowed))

    @property
    def signals(self) -> int:
        """How many of the statistics are Fed-ADE's."""
        return COMPARISONS * len(self.turn_spread)

    @property
    def history_width(self) -> int:
        """Values a row of the history: standardised scores, then how far each channel's mean is from its level."""
        return self.scoring.columns + self.scoring.intake.channels

    @cached_property
    def _per_view(self) -> dict[tuple[bool, bool], NDArray[np.float32]]:
        """(8, columns) one over the views' deviations, by whether the level of inputs, of the rest, was learnt."""
        inflation = self.inflation.astype(np.float64)
        built = 1.0 / view_deviations(inflation, self.batch_size, self.level_rows)
        learnt = 1.0 / view_deviations(inflation, self.batch_size, self.learning_batches * self.batch_size)
        first = np.arange(self.scoring.columns) < self.scoring.inputs
        return {
            (one, two): np.where(np.where(first, one, two), learnt, built).astype(np.float32)
            for one in (False, True)
            for two in (False, True)
        }

    def followed(self, means: NDArray[np.float32], moved: NDArray[np.float32]) -> NDArray[np.float32]:
        """The (..., 5, columns) weighted means after a batch of (..., columns)."""
        change = moved[..., None, :] - means
        change *= GAINS
        change += means
        return change

    @cached_property
    def _gains(self) -> NDArray[np.float32]:
        """(5 columns + shares + directions,) of the weighted means, and of Fed-ADE's slow vectors."""
        means = np.repeat(GAINS, self.scoring.columns, axis=1).ravel()
        return np.concatenate([means, np.full(len(self.signal_level), MEMORY_GAIN)])

    def followed_by(
        self,
        means: NDArray[np.float32],
        signals: NDArray[np.float32],
        moved: NDArray[np.float32],
        now: NDArray[np.float32],
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The weighted means and Fed-ADE's vectors after each of g batches in turn.

        As :meth:`followed` and ``signals.remembered`` one after the other, bit for bit.

        Args:
            means, signals: (5, columns), (3, shares + directions) before the first.
            moved, now: (g, columns), (g, shares + directions) of the batches.

        Returns:
            (g, 5, columns), and (g, 4, shares + directions).
        """
        count, columns = moved.shape
        last = np.concatenate([means.ravel(), signals[SLOW]])
        brought, path = np.empty((2, count, len(last)), np.float32)
        brought[:, : means.size].reshape(count, -1, columns)[:] = moved[:, None]
        brought[:, means.size :] = now
        for batch, after in zip(brought, path, strict=True):
            np.subtract(batch, last, out=after)
            after *= self._gains
            after += last
            last = after
        vectors = together(signals, now, path[:, means.size :])
        return path[:, : means.size].reshape(count, -1, columns), vectors

    def signal_vector(self, mean: NDArray[Any]) -> NDArray[Any]:
        """(..., shares + directions) of mean scores (..., columns + directions)."""
        starts = self.scoring.starts
        parts = (mean[..., starts[6] : starts[7]], mean[..., starts[9] :])
        return np.concatenate(parts, axis=-1) if len(self.scoring.centre) else parts[0]

    def evidence(
        self,
        means: NDArray[np.float32],
        vectors: NDArray[np.float32],
        turn_factors: NDArray[np.float32],
        *,
        own_inputs: bool = False,
        own_answers: bool = False,
    ) -> NDArray[np.float32]:
        """(..., statistics) evidence of a change.

        Args:
            means: (..., 5, columns) weighted means.
            vectors: (..., 4, shares + directions) Fed-ADE's (``signals.remembered``).
            turn_factors: (signals,) what brings those signals to the scale of the reference.
            own_inputs, own_answers: their level was learnt from the stream.
        """
        found = self.statistics(means, vectors, self._per_view[own_inputs, own_answers])
        if own_answers and len(turn_factors):
            found[..., -len(turn_factors) :] *= turn_factors
        return self.scale(found)

    def turn_factors(self, mean: NDArray[np.float64], variance: NDArray[np.float64]) -> NDArray[np.float32]:
        """(signals,) the reference's scale of Fed-ADE's signals over that of a stream.

        Args:
            mean, variance: (columns + directions,) of the stream's scores.
        """
        now = turn_spreads(self.signal_vector(mean), self.signal_vector(variance), self.scoring.shares)
        factors = np.clip(self.turn_spread / np.maximum(now, 1e-12), _LEAST_FACTOR, 1.0 / _LEAST_FACTOR)
        return np.repeat(factors, COMPARISONS).astype(np.float32)

    def statistics(
        self,
        means: NDArray[np.float32],
        vectors: NDArray[np.float32],
        per_view: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """(..., statistics) of the views and then of the signals; arguments as for :meth:`evidence`."""
        views = VIEWS @ means
        views *= self._per_view[False, False] if per_view is None else per_view
        found = self.groups(views)
        flat = found.reshape(*found.shape[:-2], -1)
        if vectors.shape[-1] == 0:
            return flat
        return np.concatenate([flat, turns(vectors, self.scoring.shares)], axis=-1)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays for ``drift.safetensors``."""
        scoring, intake, scale = self.scoring, self.scoring.intake, self.scale
        named = [intake.names, intake.units, *([scoring.said] if scoring.said else [])]
        names = json.dumps(named, ensure_ascii=False).encode()
        return {
            "names": np.frombuffer(names, np.uint8),
            "alone": intake.alone,
            "group_centre": intake.centre,
            "group_per_unit": intake.per_unit,
            "knots": scoring.tables.values,
            "knot_scores": scoring.tables.scores,
            "conditional": scoring.conditional,
            "embedding_centre": scoring.centre,
            "embedding_basis": scoring.basis,
            "embedding_lengths": scoring.lengths,
            "level": self.level,
            "per_deviation": self.per_deviation,
            "inflation": self.inflation,
            "signal_level": self.signal_level,
            "turn_spread": self.turn_spread,
            "scale": np.array([scale.mean, scale.freedom, scale.slope, scale.shift, scale.reach]),
            "channel_level": self.channel_level,
            "channel_spread": self.channel_spread,
            "class_levels": self.class_levels,
            "class_shares": self.class_shares,
        }

    def to_parameters(self) -> dict[str, bool | int | float | str]:
        """The scalars for the manifest."""
        intake = self.scoring.intake
        return {
            "threshold": self.threshold,
            "warning_threshold": self.warning_threshold,
            "intake": intake.kind,
            "features": intake.features,
            "sensors": intake.sensors,
            "outputs": self.scoring.outputs,
            "classes": self.scoring.classes or 0,
            "level_rows": self.level_rows,
            "learning_batches": self.learning_batches,
        }

    def to_spec(self, *, evidence: str, promise: PromiseSpec | None) -> tuple[MonitorSpec, dict[str, NDArray[Any]]]:
        """The manifest's entry, and the arrays for ``drift.safetensors``."""
        spec = MonitorSpec(
            parameters=self.to_parameters(),
            batch_size=self.batch_size,
            false_alarm_rate=self.false_alarm_rate,
            evidence=evidence,
            promise=promise,
        )
        return spec, self.to_arrays()

    @classmethod
    def from_spec(cls, spec: MonitorSpec, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """From the manifest's entry and the arrays of ``drift.safetensors`` without the monitor's name.

        Raises:
            DataError: something is missing, misshapen or not finite.
        """
        try:
            found = cls._read(spec, arrays)
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise DataError(f"monitor {NAME}: its constants or arrays cannot be read ({error})", _AGAIN) from None
        for name, array in found.to_arrays().items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise DataError(f"monitor {NAME}: array {name!r} is not finite", _AGAIN)
        columns = found.scoring.columns
        if any(len(array) != columns for array in (found.level, found.per_deviation, found.inflation)):
            raise DataError(f"monitor {NAME}: its arrays do not fit each other", _AGAIN)
        return found

    @classmethod
    def _read(cls, spec: MonitorSpec, arrays: Mapping[str, NDArray[Any]]) -> Self:
        given = spec.parameters
        names, units, *said = json.loads(arrays["names"].tobytes())
        kind, features = given["intake"], int(given["features"])
        told = [arrays["group_centre"], arrays["group_per_unit"]]
        if kind == "groups":  # so older bundles have it: all but those that are channels themselves are summed
            kind, told = "sums", [of_all(features, arrays["alone"], column) for column in told]
        intake = Intake(
            cast(Kind, kind),
            features,
            int(given["sensors"]),
            tuple(names),
            tuple(units),
            arrays["alone"],
            *told,
        )
        scoring = Scoring(
            intake,
            ScoreTable(arrays["knots"], arrays["knot_scores"]),
            arrays["conditional"],
            int(given["outputs"]),
            int(given["classes"]) or None,
            arrays["embedding_centre"],
            arrays["embedding_basis"],
            arrays["embedding_lengths"],
            tuple(said[0]) if said else (),
        )
        plain = (
            "level",
            "per_deviation",
            "inflation",
            "signal_level",
            "turn_spread",
            "channel_level",
            "channel_spread",
        )
        return cls(
            scoring=scoring,
            batch_size=spec.batch_size,
            threshold=float(given["threshold"]),
            warning_threshold=float(given["warning_threshold"]),
            false_alarm_rate=spec.false_alarm_rate,
            level_rows=int(given["level_rows"]),
            scale=Scale(*arrays["scale"]),
            class_levels=arrays["class_levels"],
            class_shares=arrays["class_shares"],
            learning_batches=int(given["learning_batches"]),
            **{name: arrays[name] for name in plain},
        )
