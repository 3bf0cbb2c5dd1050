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
from edge_agent.drift.unlabelled.explanation import explain
from edge_agent.drift.unlabelled.filters import MEMORIES
from edge_agent.drift.unlabelled.history import History
from edge_agent.drift.unlabelled.params import NAME, BatchMeans, LabelFreeParams
from edge_agent.drift.unlabelled.signals import BEFORE, LEVEL, remembered
from edge_agent.errors import DataError

__all__ = ["NAME", "LabelFreeParams", "LabelFreeState", "rebaseline", "step"]


@dataclass(frozen=True, slots=True)
class LabelFreeState:
    """What is remembered of a stream; of fixed size.

    Attributes:
        means: (5, columns) weighted means of the standardised scores' distance from their level.
        offset: (columns,) that level, standardised; 0: the reference's.
        signals: (3, shares + directions) Fed-ADE's vectors: of the batch before, of the last nine, and the level.
        history: for explanations.
        sums: (columns + directions,) of the batches that the level is being learnt from.
        learning: batches that are still to be learnt from.
        learns_inputs: the inputs' level is being learnt too.
        own_inputs, own_answers: whether inputs, and the rest, are compared with a level learnt from the stream.
        inputs_alarmed: the inputs alone lay above the threshold.
        batches: seen so far.
    """

    means: NDArray[np.float32]
    offset: NDArray[np.float32]
    signals: NDArray[np.float32]
    history: History
    sums: NDArray[np.float64]
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
            offset=np.zeros(columns, np.float32),
            signals=_no_batch_before(params.signal_level),
            history=History(params.history_width),
            sums=np.zeros(columns + params.scoring.directions),
        )

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """As arrays of fixed size."""
        flags = (self.learns_inputs, self.own_inputs, self.own_answers, self.inputs_alarmed)
        return {
            "means": self.means,
            "offset": self.offset,
            "signals": self.signals,
            "sums": self.sums,
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
        plain = {name: arrays[name] for name in ("means", "offset", "signals", "sums")}
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
        return _judge(params, state, params.batch_means(batch, state.offset))


def _judge(params: LabelFreeParams, state: LabelFreeState, batch: BatchMeans) -> tuple[LabelFreeState, Finding]:
    columns, inputs = params.scoring.columns, params.scoring.inputs
    moved = (batch.mean[:columns] - params.level) * params.per_deviation - state.offset
    if state.learning:
        moved[0 if state.learns_inputs else inputs :] = 0.0
    means = params.followed(state.means, moved)
    now = params.signal_vector(batch.mean)
    vectors = remembered(state.signals, now)
    evidence = params.evidence(means, vectors, own_inputs=state.own_inputs, own_answers=state.own_answers)
    of_inputs = float(np.maximum.reduce(evidence * params.of_inputs))
    statistic = of_inputs if state.learning else float(np.maximum.reduce(evidence))
    batch.row[:columns] = moved
    signals = vectors[1:]
    signals[BEFORE] = now
    following = LabelFreeState(
        means=means,
        offset=state.offset,
        signals=signals,
        history=state.history.pushed(batch.row),
        sums=state.sums,
        learning=state.learning,
        learns_inputs=state.learns_inputs,
        own_inputs=state.own_inputs,
        own_answers=state.own_answers,
        inputs_alarmed=of_inputs > params.threshold,
        batches=state.batches + 1,
    )
    if state.learning:
        following = _learnt(params, following, batch.mean)
    if statistic <= params.warning_threshold:
        return following, Finding(statistic, params.threshold, params.warning_threshold, rows=batch.rows)
    channels = params.scoring.intake.channels
    level = params.level + state.offset / params.per_deviation
    latest = (batch.scores[:, :channels] - level[:channels]).astype(np.float64)
    told = explain(params, following.history, latest, evidence, statistic, own=state.own_inputs)
    return following, replace(told, rows=batch.rows)


def rebaseline(params: LabelFreeParams, state: LabelFreeState) -> LabelFreeState:
    """The state after an activation: the model's parts, and inputs that were in alarm, learn their level anew.

    Args:
        params: those of the bundle that is active now.
        state: of the weights before.
    """
    columns, inputs = params.scoring.columns, params.scoring.inputs
    renews = state.inputs_alarmed or (state.learns_inputs and state.learning > 0)
    begin = 0 if renews else inputs
    means, offset = state.means.copy(), state.offset.copy()
    means[:, begin:], offset[begin:] = 0.0, 0.0
    return replace(
        state,
        means=means,
        offset=offset,
        signals=_no_batch_before(state.signals[LEVEL]),
        history=History(params.history_width),
        sums=np.zeros(columns + params.scoring.directions),
        learning=params.learning_batches,
        learns_inputs=renews,
        own_inputs=state.own_inputs and not renews,
        own_answers=False,
        inputs_alarmed=False,
    )


def _learnt(params: LabelFreeParams, state: LabelFreeState, mean: NDArray[np.float32]) -> LabelFreeState:
    """One more batch of the new level; after the last one it is what later batches are compared with."""
    sums = state.sums + mean
    if state.learning > 1:
        return replace(state, sums=sums, learning=state.learning - 1)
    columns, begin = params.scoring.columns, 0 if state.learns_inputs else params.scoring.inputs
    level = (sums / params.learning_batches).astype(np.float32)
    offset = state.offset.copy()
    offset[begin:] = ((level[:columns] - params.level) * params.per_deviation)[begin:]
    return replace(
        state,
        offset=offset,
        signals=_no_batch_before(params.signal_vector(level)),
        sums=np.zeros_like(sums),
        learning=0,
        learns_inputs=False,
        own_inputs=state.own_inputs or state.learns_inputs,
        own_answers=True,
    )


def _no_batch_before(level: NDArray[np.float32]) -> NDArray[np.float32]:
    """Fed-ADE's vectors where all that is known is the level."""
    return np.stack([np.zeros_like(level), level, level])
