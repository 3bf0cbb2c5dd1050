"""The monitor ``label-free``: whether what is served, and what the model says of it, is as the bundle's reference was.

Each batch becomes the mean of its samples' scores (``scoring``), that is followed over several time scales
(``filters``) and with Fed-ADE's signals (``signals``) makes one statistic (``combination``). Its threshold is
calibrated as one (``calibrate``), so the promised rate is that of all tests together.

New weights change outputs and embeddings, not inputs: after an activation the model's own parts learn their level anew
from the first batches, in which they say nothing. Inputs that were in alarm then learn theirs anew too: the weights
were made for what the stream is now.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.finding import Finding, Stepped
from edge_agent.drift.observed import Observed
from edge_agent.drift.unlabelled.explanation import Standing, explain
from edge_agent.drift.unlabelled.history import History
from edge_agent.drift.unlabelled.means import BatchMeans, batch_means
from edge_agent.drift.unlabelled.params import NAME, LabelFreeParams
from edge_agent.drift.unlabelled.signals import LEVEL
from edge_agent.drift.unlabelled.state import LabelFreeState, no_batch_before
from edge_agent.errors import DataError

__all__ = ["NAME", "LabelFreeParams", "LabelFreeState", "judge_many", "rebaseline", "step", "step_many"]

OWN_FACTOR = 1.5
"""On the thresholds where the inputs' level was learnt from the stream: their ranks are still the reference's, where
they may lie at its ends."""
_LARGEST = 1e30
_LEAST_SPREAD = 0.3
"""Of the reference's: a deviation that is learnt from a few batches counts as no less."""


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
    following, (finding,) = step_many(params, state, batch)
    return following, finding


def step_many(params: LabelFreeParams, state: LabelFreeState, seen: Observed) -> tuple[LabelFreeState, list[Finding]]:
    """Judge several batches: as :func:`step` one after the other, bit for bit, for the calls of one.

    Args:
        params: of the bundle.
        state: what came before; not changed.
        seen: any number of whole batches, served by the present weights, one after the other.

    Returns:
        The state after the last batch, and each one's finding.

    Raises:
        DataError: no whole batches, or samples of another shape than the reference's; nothing is judged then.

    Cost: that of the samples' scores; beside them little a batch, while no level is being learnt.
    """
    stepped = judge_many(params, state, seen)
    findings = [stepped.explained(place) if one.warning else one for place, one in enumerate(stepped.findings)]
    return stepped.state, findings


def judge_many(params: LabelFreeParams, state: LabelFreeState, seen: Observed) -> Stepped:
    """As :func:`step_many`, but a finding that warns is explained only when that is asked for.

    Raises:
        DataError: as :func:`step_many`.

    Cost: as :func:`step_many`, of which an explanation may be the largest part by far.
    """
    count, rest = divmod(len(seen), params.batch_size)
    if rest or not count:
        raise DataError(f"label-free: {len(seen)} samples, a batch has {params.batch_size}")
    parts: list[_Judged] = []
    done = 0
    with np.errstate(over="ignore", invalid="ignore"):
        while done < count:
            # what is learnt changes the level, that missing readings count as
            several = 1 if state.learning else count - done
            first = done * params.batch_size
            some = seen if several == count else seen.part(first, first + several * params.batch_size)
            batches = batch_means(params, some, state.level)
            judged = _judge(params, state, batches)
            state = _learnt(params, judged.after, batches) if judged.after.learning else judged.after
            parts.append(judged)
            done += several
    return Stepped(state, [one for judged in parts for one in judged.findings], partial(_explained, params, parts))


class _Judged(NamedTuple):
    """Some batches judged, and what explains a finding: the state before them, and (g, history width) rows."""

    after: LabelFreeState
    findings: list[Finding]
    before: LabelFreeState
    batches: BatchMeans
    rows: NDArray[np.float32]
    evidence: NDArray[np.float32]


def _judge(params: LabelFreeParams, state: LabelFreeState, batches: BatchMeans) -> _Judged:
    """After some batches; while a level is being learnt, after one, from which nothing is learnt here."""
    rows = _rows(params, state, batches)
    moved, now = rows[:, : params.scoring.columns], params.signal_vector(batches.mean)
    means, vectors = params.followed_by(state.means, state.signals, moved, now)
    evidence = params.evidence(
        means, vectors, state.turn_factors, own_inputs=state.own_inputs, own_answers=state.own_answers
    )
    of_inputs = np.maximum.reduce(evidence * params.of_inputs, axis=1).tolist()
    statistics = of_inputs if state.learning else np.maximum.reduce(evidence, axis=1).tolist()
    raised = OWN_FACTOR if state.own_inputs else 1.0
    threshold, warning = raised * params.threshold, raised * params.warning_threshold
    found = [
        Finding(statistic, threshold, warning, rows=many)
        for statistic, many in zip(statistics, batches.rows, strict=True)
    ]
    alarmed = of_inputs[-1] > threshold
    after = state.after(means[-1], vectors[-1], state.history.pushed(*rows), len(found), alarmed=alarmed)
    return _Judged(after, found, state, batches, rows, evidence)


def _explained(params: LabelFreeParams, parts: Sequence[_Judged], place: int) -> Finding:
    """The finding of one of the batches that were judged in these parts."""
    number = 0
    while place >= len(parts[number].findings):
        place -= len(parts[number].findings)
        number += 1
    one = parts[number]
    said = one.findings[place]
    if not said.warning:
        return said
    history = one.before.history.pushed(*one.rows[: place + 1])
    with np.errstate(over="ignore", invalid="ignore"):
        return explain(params, history, _standing(one.before, one.batches, place), one.evidence[place], said)


def _rows(params: LabelFreeParams, state: LabelFreeState, batches: BatchMeans) -> NDArray[np.float32]:
    """(g, history width) standardised scores' means less their level, and the channels'."""
    columns = params.scoring.columns
    rows = np.empty((len(batches.mean), params.history_width), np.float32)
    moved = rows[:, :columns]
    np.subtract(batches.mean[:, :columns], state.level[:columns], out=moved)
    moved *= state.per_deviation
    if state.learning:
        moved[:, 0 if state.learns_inputs else params.scoring.inputs :] = 0.0
    rows[:, columns:] = batches.away
    return rows


def _standing(state: LabelFreeState, batches: BatchMeans, place: int) -> Standing:
    channels = batches.channels.shape[2]
    latest = (batches.scores[place, :, :channels] - state.level[:channels]).astype(np.float64)
    spread = batches.channels[place].std(axis=0, dtype=np.float64)
    spread = np.nan_to_num(spread, nan=_LARGEST, posinf=_LARGEST)
    return Standing(latest, spread, state.level, state.per_deviation, state.own_inputs)


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
        signals=no_batch_before(state.signals[LEVEL]),
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
    sums = state.sums + batch.mean[0]
    squares = state.squares + np.square(batch.scores[0], dtype=np.float64).mean(axis=0)
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
        signals=no_batch_before(params.signal_vector(level)),
        turn_factors=params.turn_factors(mean, variance),
        sums=np.zeros_like(sums),
        squares=np.zeros_like(squares),
        learning=0,
        learns_inputs=False,
        own_inputs=state.own_inputs or state.learns_inputs,
        own_answers=True,
    )
