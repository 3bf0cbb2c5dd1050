"""The loss-rise rule (published, and with the product's additions) as a monitor like the others."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift import loss_rise
from edge_agent.drift.change_point import change_index
from edge_agent.drift.finding import Attribution, Finding
from edge_agent.drift.loss_rise import LossRiseParams, LossRiseState
from edge_agent.drift.observed import Labelled
from edge_agent.drift.policy.severity import LOSS
from edge_agent.drift.rises import clip_losses
from edge_agent.drift.stored_state import fitting
from edge_agent.errors import DataError

NAME = loss_rise.MONITOR_NAME


@dataclass(frozen=True)
class RiseState:
    """The rule's state, and its constants, which fix the size of its arrays."""

    params: LossRiseParams
    rule: LossRiseState

    @classmethod
    def start(cls, params: LossRiseParams) -> Self:
        """Nothing seen yet."""
        return cls(params, LossRiseState.start(params))

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """``numbers`` (7,) int64; ``levels`` (2,), ``previous`` (lookback,), ``warmup`` (losses,) float64, NaN: no."""
        rule, params = self.rule, self.params
        numbers = (
            rule.run,
            rule.warmup_left,
            len(rule.warmup_losses),
            rule.quiet,
            rule.batches,
            rule.firings,
            rule.epoch,
        )
        return {
            "numbers": np.array(numbers, np.int64),
            "levels": np.array([rule.gamma, np.nan if rule.held_loss is None else rule.held_loss]),
            "previous": _filled(rule.previous, params.lookback),
            "warmup": _filled(rule.warmup_losses, params.warmup_batches * params.batch_size),
        }

    @classmethod
    def from_arrays(cls, params: LossRiseParams, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """From :meth:`to_arrays`, bit for bit.

        Raises:
            DataError: not those of this rule.
        """
        arrays = fitting(NAME, cls.start(params).to_arrays(), arrays)
        run, warmup_left, warmed, quiet, batches, firings, epoch = arrays["numbers"].tolist()
        gamma, held = arrays["levels"].tolist()
        previous = arrays["previous"]
        return cls(
            params,
            LossRiseState(
                gamma=gamma,
                previous=tuple(previous[~np.isnan(previous)].tolist()),
                run=run,
                warmup_left=warmup_left,
                warmup_losses=tuple(arrays["warmup"][:warmed].tolist()),
                held_loss=None if np.isnan(held) else held,
                quiet=quiet,
                batches=batches,
                firings=firings,
                epoch=epoch,
            ),
        )


def step(params: LossRiseParams, state: RiseState, batch: Labelled) -> tuple[RiseState, Finding]:
    """Judge the next batch (:func:`edge_agent.drift.loss_rise.step`).

    The statistic is the rise; while a flag of the rule stands, the loss over that before the drift. A rise that the
    rule does not fire on (its patience, its warm-up) counts at most as a warning.

    Raises:
        DataError: not exactly one batch.
    """
    before = _before(state.rule)
    rule, verdict = loss_rise.step(params, state.rule, batch.losses)
    warning = rule.gamma / params.safety
    inside = verdict.fired and verdict.in_warmup
    if inside:
        before = verdict.batch_loss - verdict.statistic
    at_most = np.inf if verdict.fired or verdict.held else warning if verdict.in_warmup else verdict.threshold
    statistic = min(verdict.statistic, at_most)
    finding = Finding(
        statistic=statistic,
        threshold=verdict.threshold,
        warning_threshold=min(warning, verdict.threshold),
        began_samples=verdict.run * len(batch) if inside else _began(params, batch, before) if verdict.fired else None,
        shift="loss",
        attributions=() if before is None else (Attribution(LOSS, before, verdict.batch_loss),),
        rows=len(batch),
    )
    return RiseState(params, rule), finding


def step_many(params: LossRiseParams, state: RiseState, seen: Labelled) -> tuple[RiseState, list[Finding]]:
    """Judge whole batches, one after the other; the state after the last, and each one's finding.

    Raises:
        DataError: no whole batches; nothing is judged then.
    """
    size = params.batch_size
    if len(seen) % size or not len(seen):
        raise DataError(f"{NAME}: {len(seen)} losses, a batch has {size}")
    found: list[Finding] = []
    for start in range(0, len(seen), size):
        state, finding = step(params, state, seen.part(start, start + size))
        found.append(finding)
    return state, found


def rebaseline(params: LossRiseParams, state: RiseState) -> RiseState:
    """After an activation (:func:`edge_agent.drift.loss_rise.rebaseline`)."""
    return RiseState(params, loss_rise.rebaseline(params, state.rule))


def _before(rule: LossRiseState) -> float | None:
    if rule.held_loss is not None:
        return rule.held_loss
    return min(rule.previous) if rule.previous else None


def _began(params: LossRiseParams, batch: Labelled, before: float | None) -> int:
    """How many of the batch's samples, by the time at which they were measured, lie after the change."""
    order = np.argsort(batch.times_s, kind="stable")
    clipped = clip_losses(batch.losses[order], params.clip)
    return len(batch) - change_index(clipped, 0.0 if before is None else before)


def _filled(values: tuple[float, ...], size: int) -> NDArray[np.float64]:
    filled = np.full(size, np.nan)
    filled[: len(values)] = values
    return filled
