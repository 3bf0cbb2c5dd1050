"""The monitor ``label-free``: whether what is served, and what the model says of it, is as the bundle's reference was.

Each batch becomes the mean of its samples' scores (``scoring``), that is followed over several time scales
(``filters``) and with Fed-ADE's signals (``signals``) makes one statistic (``combination``). Its threshold is
calibrated as one (``calibrate``), so the promised rate is that of all tests together.

New weights change outputs and embeddings, not inputs: after an activation the model's own parts learn their level anew
from the first batches, in which they say nothing. Inputs that were in alarm then learn theirs anew too: the weights
were made for what the stream is now.
"""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.finding import Finding
from edge_agent.drift.observed import Observed
from edge_agent.drift.unlabelled.explanation import Standing, explain
from edge_agent.drift.unlabelled.filters import MEMORIES
from edge_agent.drift.unlabelled.history import History
from edge_agent.drift.unlabelled.params import NAME, BatchMeans, LabelFreeParams
from edge_agent.drift.unlabelled.signals import BEFORE, LEVEL, remembered
from edge_agent.errors import DataError

__all__ = ["NAME", "LabelFreeParams", "LabelFreeState", "rebaseline", "step"]

_ARRAYS = ("means", "level", "per_deviation", "signals", "turn_factors", "sums", "squares")
OWN_FACTOR = 1.5
"""On the thresholds where the inputs' level was learnt from the stream: their ranks are still the reference's, where
they may lie at its ends."""
_LARGEST = 1e30
_LEAST_SPREAD = 0.3
"""Of the reference's: a deviation that is learnt from a few batches counts as no less."""


@dataclass(frozen=True, slots=True)
class LabelFreeState:
    """What is remembered of a stream; of fixed size.

    Attributes:
        means: (5, columns) weighted means of the standardised scores' distance from their level.
        level: (columns + directions,) that level: the reference's, or the stream's own.
        per_deviation: (columns,) one over the rows' deviations, in the reference or in the stream.
        signals: (3, shares + directions) Fed-ADE's vectors: of the batch before, of the last nine, and the level.
        history: for explanations.
        turn_factors: (signals,) what brings Fed-ADE's signals to the scale that they have in the reference.
        sums, squares: (columns + directions,) of the batches that the level is being learnt from.
        learning: batches that are still to be learnt from.
        learns_inputs: the inputs' level is being learnt too.
        own_inputs, own_answers: whether inputs, and the rest, are compared with a level learnt from the stream.
        inputs_alarmed: the inputs alone lay above the threshold.
        batches: seen so far.
    """

    means: NDArray[np.float32]
    level: NDArray[np.float32]
    per_deviation: NDArray[np.float32]
    signals: NDArray[np.float32]
    turn_factors: NDArray[np.float32]
    history: History
    sums: NDArray[np.float64]
    squares: NDArray[np.float64]
    learning: int = 0
    learns_inputs: bool = False
    own_inputs: bool = False
    own_answers: bool = False
    inputs_alarmed: bool = False
    batches: int = 0

    @classmethod
    def start(cls, params: LabelFreeParams) -> Self:
        """Nothing seen yet: everything is at the reference's level."""
        columns = params.scoring.columns
        return cls(
            means=np.zeros((len(MEMORIES), columns), np.float32),
            level=params.whole_level,
            per_deviation=params.per_deviation,
            signals=_no_batch_before(params.signal_level),
            turn_factors=np.ones(params.signals, np.float32),
            history=History(params.history_width),
            sums=np.zeros(columns + params.scoring.directions),
            squares=np.zeros(columns + params.scoring.directions),
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """As arrays of fixed size."""
        flags = (self.learns_inputs, self.own_inputs, self.own_answers, self.inputs_alarmed)
        return {
            "means": self.means,
            "level": self.level,
            "per_deviation": self.per_deviation,
            "signals": self.signals,
            "turn_factors": self.turn_factors,
            "sums": self.sums,
            "squares": self.squares,
            "counts": np.array([self.learning, *map(int, flags), self.batches], np.int64),
            **self.history.to_arrays(),
        }

    @classmethod
    def from_arrays(cls, params: LabelFreeParams, arrays: dict[str, NDArray[Any]]) -> Self:
        """From :meth:`to_arrays`, bit for bit.

        Raises:
            DataError: an array is missing or of another shape or type: the state belongs to another bundle.
        """
        fresh = cls.start(params)
        for name, like in fresh.to_arrays().items():
            have = arrays.get(name)
            if have is None or have.shape != like.shape or have.dtype != like.dtype:
                raise DataError(f"label-free: stored array {name!r} is missing or of another shape", "start anew")
        learning, *flags, batches = arrays["counts"].tolist()
        named = zip(("learns_inputs", "own_inputs", "own_answers", "inputs_alarmed"), map(bool, flags), strict=True)
        plain = {name: arrays[name] for name in _ARRAYS}
        history = History.from_arrays(arrays["averaged"], arrays["single"])
        told: dict[str, Any] = {**plain, **dict(named)}
        return cls(history=history, learning=learning, batches=batches, **told)


def step(params: LabelFreeParams, state: LabelFreeState, batch: Observed) -> tuple[LabelFreeState, Finding]:
    """Judge the next batch.

    A reading that is broken (``faulty``) or not finite counts as one that is as expected. Attributions are given from
    a warning on.

    Args:
        params: of the bundle.
        state: what came before; not changed.
        batch: exactly ``params.batch_size`` samples, served by the present weights.

    Returns:
        The next state, and the finding.

    Raises:
        DataError: another number of samples, or samples of another shape than the reference's.

    Cost: O(batch (channels^2 + embedding)) time; the state is of fixed size.
    """
    if len(batch) != params.batch_size:
        raise DataError(f"label-free: {len(batch)} samples, a batch has {params.batch_size}")
    with np.errstate(over="ignore", invalid="ignore"):
        return _judge(params, state, params.batch_means(batch, state.level))


def _judge(params: LabelFreeParams, state: LabelFreeState, batch: BatchMeans) -> tuple[LabelFreeState, Finding]:
    columns, inputs = params.scoring.columns, params.scoring.inputs
    moved = (batch.mean[:columns] - state.level[:columns]) * state.per_deviation
    if state.learning:
        moved[0 if state.learns_inputs else inputs :] = 0.0
    means = params.followed(state.means, moved)
    now = params.signal_vector(batch.mean)
    vectors = remembered(state.signals, now)
    evidence = params.evidence(
        means, vectors, state.turn_factors, own_inputs=state.own_inputs, own_answers=state.own_answers
    )
    of_inputs = float(np.maximum.reduce(evidence * params.of_inputs))
    statistic = of_inputs if state.learning else float(np.maximum.reduce(evidence))
    batch.row[:columns] = moved
    signals = vectors[1:]
    signals[BEFORE] = now
    following = LabelFreeState(
        means=means,
        level=state.level,
        per_deviation=state.per_deviation,
        signals=signals,
        turn_factors=state.turn_factors,
        history=state.history.pushed(batch.row),
        sums=state.sums,
        squares=state.squares,
        learning=state.learning,
        learns_inputs=state.learns_inputs,
        own_inputs=state.own_inputs,
        own_answers=state.own_answers,
        inputs_alarmed=of_inputs > (OWN_FACTOR if state.own_inputs else 1.0) * params.threshold,
        batches=state.batches + 1,
    )
    if state.learning:
        following = _learnt(params, following, batch)
    raised = OWN_FACTOR if state.own_inputs else 1.0
    said = Finding(statistic, raised * params.threshold, raised * params.warning_threshold, rows=batch.rows)
    if not said.warning:
        return following, said
    channels = params.scoring.intake.channels
    latest = (batch.scored.scores[:, :channels] - state.level[:channels]).astype(np.float64)
    spread = np.nan_to_num(batch.scored.channels.std(axis=0, dtype=np.float64), nan=_LARGEST, posinf=_LARGEST)
    known = Standing(latest, spread, state.level, state.per_deviation, state.own_inputs)
    return following, explain(params, following.history, known, evidence, said)


def rebaseline(params: LabelFreeParams, state: LabelFreeState) -> LabelFreeState:
    """The state after an activation: the model's parts, and inputs that were in alarm, learn their level anew.

    Args:
        params: those of the bundle that is active now.
        state: of the weights before.
    """
    renews = state.inputs_alarmed or (state.learns_inputs and state.learning > 0)
    begin = 0 if renews else params.scoring.inputs
    means = state.means.copy()
    means[:, begin:] = 0.0
    return replace(
        state,
        means=means,
        signals=_no_batch_before(state.signals[LEVEL]),
        history=History(params.history_width),
        sums=np.zeros_like(state.sums),
        squares=np.zeros_like(state.squares),
        learning=params.learning_batches,
        learns_inputs=renews,
        own_inputs=state.own_inputs and not renews,
        own_answers=False,
        inputs_alarmed=False,
    )


def _learnt(params: LabelFreeParams, state: LabelFreeState, batch: BatchMeans) -> LabelFreeState:
    """One more batch of the new level; after the last one it is what later batches are compared with."""
    sums = state.sums + batch.mean
    squares = state.squares + np.square(batch.scored.scores, dtype=np.float64).mean(axis=0)
    if state.learning > 1:
        return replace(state, sums=sums, squares=squares, learning=state.learning - 1)
    begin, columns = 0 if state.learns_inputs else params.scoring.inputs, params.scoring.columns
    mean = sums / params.learning_batches
    variance = np.maximum(squares / params.learning_batches - np.square(mean), 0.0)
    level, per_deviation = state.level.copy(), state.per_deviation.copy()
    level[begin:] = mean[begin:]
    least = _LEAST_SPREAD / params.per_deviation
    per_deviation[begin:] = (1.0 / np.maximum(np.sqrt(variance[:columns]), least))[begin:]
    return replace(
        state,
        level=level,
        per_deviation=per_deviation,
        signals=_no_batch_before(params.signal_vector(level)),
        turn_factors=params.turn_factors(mean, variance),
        sums=np.zeros_like(sums),
        squares=np.zeros_like(squares),
        learning=0,
        learns_inputs=False,
        own_inputs=state.own_inputs or state.learns_inputs,
        own_answers=True,
    )


def _no_batch_before(level: NDArray[np.float32]) -> NDArray[np.float32]:
    """Fed-ADE's vectors where all that is known is the level."""
    return np.stack([np.zeros_like(level), level, level])
