"""From a window's means to a figure, or to the reason why there is none. Nothing here remembers anything."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.accuracy.class_mix import misfit, shares_that_fit
from edge_agent.drift.accuracy.estimated import Refusal
from edge_agent.drift.accuracy.params import AccuracyParams
from edge_agent.drift.accuracy.weighing import balancing_weights

Floats = NDArray[np.float64]

Z90 = 1.6449
LEAST_ROWS = 50
UNUSABLE_SHARE = 0.1
OUTSIDE_SHARE = 0.1
LEAST_SPEAKING, LEAST_SPEAKING_SHARE = 50.0, 0.1
MOST_SPREAD = 4.5
"""Standard errors; of some twenty signals; the largest of windows that importances had drawn was below 3.5 in 95 %."""
_FLAT = 1e-4
OVERLAPPING = 0.97
"""Reference accuracy below which classes overlap: a class that it does not know, or whose share has changed, then looks
like its neighbours; above it, it lies apart and changes little or is outside of the support."""
MOST_MOVED, MOVED_ALONE = 0.45, 0.2
EXPLAINED_ALONE, EXPLAINED = 0.85, 0.6
"""Shares of a change that other shares of the classes account for."""
MOST_CONTRADICTION, GROSS_CONTRADICTION = 0.06, 0.12
"""Of accuracy; of a loss in units of which the reference's spread is 0.37, that of an accuracy of 5 in 6."""
_SPREAD = 0.37
_TRUST = 300.0
"""Rows that speak with which the weighed residuals count half; of development windows 100 to 1000 do alike."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A window's figure and what it rests on.

    Attributes:
        value, low, high: NaN where refused.
        misfit: of the window against the reference, about 1 where nothing has changed.
        speaking: rows of the reference that the weights leave (1 / sum of their squares); NaN: not asked.
        moved: total variation distance of the shares of the classes from the reference's; NaN: not asked.
        other: the figure if only the shares of the classes have changed; NaN: not asked.
    """

    refusal: Refusal
    value: float = np.nan
    low: float = np.nan
    high: float = np.nan
    misfit: float = np.nan
    speaking: float = np.nan
    moved: float = np.nan
    other: float = np.nan


class Sums(NamedTuple):
    """What is known of some rows in a row.

    Attributes:
        totals: (h + s + c,) sums of the functions, and of squares, over the usable ones.
        rows: how many those are.
        outside: of them, outside of the reference's support.
        seen: all.
    """

    totals: Floats
    rows: int
    outside: int
    seen: int


def judge(params: AccuracyParams, window: Sums) -> Judgement:
    """The figure for a window, or why there is none.

    Cost: some 0.1 ms where nothing has changed, else O(n p^2) for the weights, a few ms.
    """
    totals, rows, outside, seen = window
    if seen - rows > UNUSABLE_SHARE * seen:
        return Judgement("not-finite")
    if rows < LEAST_ROWS:
        return Judgement("too-few")
    averages, many = totals / rows, len(params.middle)
    mean, squares = averages[:many], averages[many:]
    away = (mean - params.middle) / params.width
    noise = 1.0 / rows + 1.0 / len(params.rows)
    distance = misfit(params.inverse, away, noise)
    if outside > OUTSIDE_SHARE * rows:
        return Judgement("support", misfit=distance)
    if distance <= params.changed_limit:
        return _unchanged(params, mean, squares, away, rows, distance)
    if len(params.absent) and params.expected < OVERLAPPING:
        return Judgement("new-class", misfit=distance)
    return _changed(params, mean, squares, away, rows, noise, distance)


def apart(params: AccuracyParams, one: Sums, other: Sums) -> float:
    """Squared distance of the means of two parts of a window, both with rows: about 1 where they are alike."""
    size = len(params.middle)
    away = (one.totals[:size] / one.rows - other.totals[:size] / other.rows) / params.width
    return misfit(params.inverse, away, 1.0 / one.rows + 1.0 / other.rows)


def _unchanged(
    params: AccuracyParams, mean: Floats, squares: Floats, away: Floats, rows: int, distance: float
) -> Judgement:
    many = len(params.rows)
    weights = np.maximum(1.0 + params.rows @ (params.first @ away[: params.rows.shape[1]]), 0.0) / many
    weights /= weights.sum()
    if _spread_otherwise(params, weights, squares, 1.0 / rows):
        return Judgement("unlike", misfit=distance)
    value, low, high, speaking = _figure(params, float(mean[0]), weights, rows, 0.0)
    return Judgement("", value, low, high, distance, speaking)


def _changed(
    params: AccuracyParams, mean: Floats, squares: Floats, away: Floats, rows: int, noise: float, distance: float
) -> Judgement:
    many, p = params.rows.shape
    weights = balancing_weights(params.rows, away[:p], noise)
    speaking = 1.0 / float(weights @ weights)
    before = params.counts / params.counts.sum()
    shares = shares_that_fit(params.means, params.inverse, away, before)
    moved, other = 0.5 * float(np.abs(shares - before).sum()), float(shares @ params.levels)
    value = _value(params, float(mean[0]), weights, speaking)
    left = misfit(params.inverse, away - shares @ params.means, noise)
    contradiction = abs(value - other)
    refusal: Refusal = ""
    if speaking < max(LEAST_SPEAKING, LEAST_SPEAKING_SHARE * many):
        refusal = "weights"
    elif _spread_otherwise(params, weights, squares, 1.0 / rows):
        refusal = "unlike"
    elif _mix_changed(params, moved, 1.0 - left / distance, contradiction / _unit(params)):
        refusal = "class-mix"
    if refusal:
        return Judgement(refusal, misfit=distance, speaking=speaking, moved=moved, other=other)
    value, low, high, _ = _figure(params, float(mean[0]), weights, rows, contradiction)
    return Judgement("", value, low, high, distance, speaking, moved, other)


def _spread_otherwise(params: AccuracyParams, weights: Floats, squares: Floats, noise: float) -> bool:
    """Whether a squared signal's or reading's mean is further from the weighed reference's than chance puts it.

    Weights balance the signals, not their squares: a reading that is stuck, noisy or scaled stays visible. The mean of
    few squares is skewed; its cube root is not (Wilson and Hilferty 1931), so that few independent rows, as where
    neighbours resemble each other, need no wider limit.
    """
    moments = (weights.astype(np.float32) @ params.squares).astype(np.float64)
    expected, fourth = moments[: len(squares)], moments[len(squares) :]
    variance = np.maximum(fourth - np.square(expected), 0.0)
    error = np.sqrt((variance + _FLAT) * (noise + float(weights @ weights)) * params.inflations)
    level = expected + np.sqrt(_FLAT)
    away = 3.0 * level / error * np.abs(np.cbrt((squares + np.sqrt(_FLAT)) / level) - 1.0)
    return bool(away.max() > MOST_SPREAD)


def _mix_changed(params: AccuracyParams, moved: float, explained: float, contradiction: float) -> bool:
    """Whether the classes' shares have changed in a way that weights on inputs do not follow."""
    alone = params.expected < OVERLAPPING and explained > EXPLAINED_ALONE and moved > MOVED_ALONE
    contradicted = explained > EXPLAINED and contradiction > MOST_CONTRADICTION
    return moved > MOST_MOVED or alone or contradicted or contradiction > GROSS_CONTRADICTION


def _unit(params: AccuracyParams) -> float:
    """1 for accuracies; for losses, their spread in the reference over that of an accuracy."""
    return 1.0 if params.quantity == "accuracy" else float(params.residuals.std()) / _SPREAD


def _value(params: AccuracyParams, expects: float, weights: Floats, speaking: float) -> float:
    trust = speaking / (speaking + _TRUST)
    value = expects + trust * float(weights @ params.residuals)
    return min(max(value, 0.0), params.clip)


def _figure(
    params: AccuracyParams, expects: float, weights: Floats, rows: int, widened: float
) -> tuple[float, float, float, float]:
    """Value, 90 % interval and rows that speak; both the window and the reference are samples.

    Source: Wilson 1927 for accuracies, with as many trials as both samples together are worth, since few or no errors
        in the reference would give an interval of no width; its ends are rounded outwards to shares that the window
        can have.
    """
    speaking = 1.0 / float(weights @ weights)
    value = _value(params, expects, weights, speaking)
    noise = 1.0 / rows + 1.0 / speaking
    if params.quantity == "loss":
        spread = float(weights @ np.square(params.residuals))
        half = Z90 * float(np.sqrt(spread * noise))
        half = float(np.hypot(half, widened))
        return value, max(value - half, 0.0), min(value + half, params.clip), speaking
    trials = 1.0 / noise
    centre = (value + Z90**2 / (2 * trials)) / (1 + Z90**2 / trials)
    half = Z90 / (1 + Z90**2 / trials) * float(np.sqrt(value * (1 - value) / trials + Z90**2 / (4 * trials**2)))
    half = float(np.hypot(half, widened))
    low, high = min(centre - half, value), max(centre + half, value)
    return value, max(np.floor(low * rows) / rows, 0.0), min(np.ceil(high * rows) / rows, 1.0), speaking
