"""``loss-level``: alarms when the losses' level has risen, however slowly, above that of the reference.

Every labelled sample is judged as it comes; a batch only says what its worst moment was. The level is that of the
bundle's reference until weights are activated, and from the end of a warm-up on that of the warm-up's samples. What
happens too seldom for these to tell is the reference's, as long as they do not show that the new weights are better.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.finding import Attribution, Finding
from edge_agent.drift.observed import Labelled
from edge_agent.drift.rises import LOSS_CAP
from edge_agent.drift.sequential.many import advance_blocks
from edge_agent.drift.sequential.mixture import BLOCK, RECENT, advance
from edge_agent.drift.sequential.params import MARGIN, NAME, WARMUP_BATCHES, WARMUP_MARGIN, LossLevelParams
from edge_agent.drift.sequential.state import LossLevelState, table_of
from edge_agent.drift.sequential.table import Distribution, binned
from edge_agent.drift.sequential.usual import usual_losses
from edge_agent.errors import DataError

__all__ = [
    "MARGIN",
    "NAME",
    "WARMUP_BATCHES",
    "WARMUP_MARGIN",
    "LossLevelParams",
    "LossLevelState",
    "rebaseline",
    "step",
    "step_many",
]

# Evidence is cut down to this far above the threshold, so that an alarm ends soon after the losses are back.
_ABOVE = 1.0


def step(params: LossLevelParams, state: LossLevelState, batch: Labelled) -> tuple[LossLevelState, Finding]:
    """Judge the next labelled samples.

    Args:
        params: the monitor's constants.
        state: what came before; not changed.
        batch: samples served by the present weights, in the order in which their labels came: ``batch_size`` of them,
            or any other number >= 1, then the rate is still that of ``batch_size`` samples. A loss that is not finite
            counts as one above all of the reference.

    Returns:
        The next state, and the finding. Its statistic is the largest after any of the samples; 0 in a warm-up.

    Raises:
        DataError: no sample, or losses of another shape.

    Source: ``mixture.advance``.
    Cost: O(n): 0.04 ms for 32 samples; at the end of a warm-up 0.3 ms.
    """
    losses = np.asarray(batch.losses, np.float64)
    if losses.ndim != 1 or not len(losses):
        raise DataError(f"a batch of losses is needed, not an array of shape {losses.shape}")
    samples = state.samples + len(losses)
    if state.warmup_left:
        return _warm_up(params, replace(state, samples=samples), losses)
    numbers, finite = _read(state, losses)
    evidence, statistic = advance(state.evidence, state.table, numbers, finite, params.threshold + _ABOVE)
    following = LossLevelState(evidence, state.distribution, state.table, state.warmup, 0, samples, state.epoch)
    return following, _finding(params, following, statistic, len(losses))


def step_many(params: LossLevelParams, state: LossLevelState, seen: Labelled) -> tuple[LossLevelState, list[Finding]]:
    """Judge several batches: as :func:`step` one after the other, bit for bit, for less while nothing warns.

    Args:
        seen: any number of whole batches, as for :func:`step`.

    Returns:
        The state after the last batch, and each one's finding.

    Raises:
        DataError: no whole batches, or losses of another shape; nothing is judged then.
    """
    losses, size = np.asarray(seen.losses, np.float64), params.batch_size
    if losses.ndim != 1 or not len(losses) or len(losses) % size:
        raise DataError(f"whole batches of {size} losses are needed, not an array of shape {losses.shape}")
    found: list[Finding] = []
    while len(found) * size < len(losses):
        first = len(found) * size
        quiet = _quietly(params, state, losses[first : first + RECENT * BLOCK // size * size])
        if quiet is None:
            state, finding = step(params, state, seen.part(first, first + size))
            found.append(finding)
        else:
            state, findings = quiet
            found += findings
    return state, found


def _quietly(
    params: LossLevelParams, state: LossLevelState, losses: NDArray[np.float64]
) -> tuple[LossLevelState, list[Finding]] | None:
    """After batches of whole blocks none of which warns; None: they are no such."""
    if params.batch_size % BLOCK or state.warmup_left or len(losses) < 2 * BLOCK:
        return None
    numbers, finite = _read(state, losses)
    shape = (-1, BLOCK)
    went = advance_blocks(
        state.evidence, state.table, numbers.reshape(shape), finite.reshape(shape), params.threshold + _ABOVE
    )
    if went is None or went[1].max() > params.warning_threshold:
        return None
    evidence, statistics = went
    by_batch = np.maximum.reduce(statistics.reshape(-1, params.batch_size // BLOCK), axis=1)
    samples = state.samples + len(losses)
    following = LossLevelState(evidence, state.distribution, state.table, state.warmup, 0, samples, state.epoch)
    return following, [_finding(params, following, statistic, params.batch_size) for statistic in by_batch.tolist()]


def _read(state: LossLevelState, losses: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The losses' bins, and the losses, finite."""
    finite = np.where(np.isfinite(losses), np.minimum(losses, LOSS_CAP), state.distribution.levels[-1])
    return binned(state.distribution.knots, losses), finite


def rebaseline(params: LossLevelParams, state: LossLevelState) -> LossLevelState:
    """The state after an activation: evidence ends, and a warm-up begins that will tell the level.

    The threshold stays that of the promise; what is less known of the level is made up for by ``WARMUP_MARGIN``.

    Args:
        params: those of the bundle that is active now.
        state: of the weights before; counters go on.
    """
    size = params.warmup_batches * params.batch_size
    return replace(
        LossLevelState.start(params),
        warmup_left=size,
        samples=state.samples,
        epoch=state.epoch + 1,
    )


def _warm_up(
    params: LossLevelParams, state: LossLevelState, losses: NDArray[np.float64]
) -> tuple[LossLevelState, Finding]:
    taken = losses[: state.warmup_left]
    warmup = state.warmup.copy()
    first = len(warmup) - state.warmup_left
    warmup[first : first + len(taken)] = np.where(np.isnan(taken), np.inf, taken)
    following = replace(state, warmup=warmup, warmup_left=state.warmup_left - len(taken))
    quiet = Finding(0.0, params.threshold, params.warning_threshold, rows=len(losses))
    if following.warmup_left:
        return following, quiet
    if np.isfinite(warmup).any():
        distribution = Distribution.of(usual_losses(params.distribution, warmup, inflation=params.inflation))
        following = replace(following, distribution=distribution, table=table_of(params, distribution, following.epoch))
    following = replace(following, warmup=np.full(len(warmup), np.nan))
    return following, quiet


def _finding(params: LossLevelParams, state: LossLevelState, statistic: float, rows: int) -> Finding:
    if statistic <= params.warning_threshold:
        return Finding(statistic, params.threshold, params.warning_threshold, rows=rows)
    run, level = state.evidence.began
    risen = Attribution("loss", state.distribution.mean, level)
    return Finding(
        statistic,
        params.threshold,
        params.warning_threshold,
        began_samples=run or None,
        shift="loss",
        attributions=(risen,) if run else (),
        rows=rows,
    )
