"""The shares of the classes in a batch without labels, where only the shares have changed."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.losses import is_one_logit
from edge_agent.errors import DataError

LABEL_SHIFT_KEY = "clma-label-shift"  # in an order's config: whether the shares of the classes are estimated
STRENGTH = 10.0
ITERATIONS, ENOUGH = 100, 1e-6
_LEAST_SHARE = 1e-6


def estimate_shares(
    probabilities: NDArray[Any],
    prior: NDArray[Any],
    *,
    strength: float = STRENGTH,
) -> NDArray[np.float64]:
    """The most likely shares, given what a model says of each sample.

    Right where the classes look as they did (label shift). Where the features have changed, the model's mistakes
    count as shares: a large ``strength`` then keeps to the prior.

    Args:
        probabilities: (n, classes) of a model whose shares are the prior's; rows that are not finite are left out.
        prior: (classes,) shares that the model gives on the data that it was made for, of any positive scale.
        strength: how many samples the prior is worth, >= 0; at least a few where n is not many times the classes.

    Returns: (classes,) shares, each > 0, their sum 1; the prior where no row is finite.

    Raises:
        DataError: shapes that do not fit, or a prior that is not finite and not negative with a positive sum.

    Source: Saerens, Latinne and Decaestecker 2002 (expectation maximisation), with a Dirichlet prior.
    Cost: O(100 n classes) at most; 32 x 10 take about 1 ms.
    """
    shares = np.asarray(prior, np.float64)
    if shares.ndim != 1 or not np.isfinite(shares).all() or (shares < 0).any() or shares.sum() <= 0:
        raise DataError("label shift: the prior is no list of shares", "calibrate the bundle again")
    if probabilities.ndim != 2 or probabilities.shape[1] != len(shares):
        raise DataError(f"label shift: probabilities {list(probabilities.shape)} for {len(shares)} classes")
    shares = _proper(shares)
    rows = probabilities[np.isfinite(probabilities).all(axis=1)].astype(np.float64)
    estimate, pseudo = shares, strength * shares
    if len(rows) == 0:
        return shares
    ratios = np.maximum(rows, 0.0) / shares
    for _ in range(ITERATIONS):
        weighed = ratios * estimate
        weighed /= np.maximum(weighed.sum(axis=1, keepdims=True), np.finfo(np.float64).tiny)
        renewed = _proper(weighed.sum(axis=0) + pseudo)
        change = float(np.abs(renewed - estimate).max())
        estimate = renewed
        if change < ENOUGH:
            break
    return estimate


def softmax(logits: NDArray[Any]) -> NDArray[np.float64]:
    """(n, classes) probabilities of logits; a row that is not finite gives NaN.

    One logit a sample, (n,) or (n, 1), is that of class 1 of two.
    """
    wide = np.asarray(logits, np.float64)
    if is_one_logit(wide):
        column = wide.reshape(-1, 1)
        wide = np.concatenate([np.zeros_like(column), column], axis=1)
    wide = np.where(np.isfinite(wide).all(axis=-1, keepdims=True), wide, np.nan)
    powers = np.exp(wide - wide.max(axis=-1, keepdims=True)) if wide.size else wide
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True)) if wide.size else wide


def _proper(shares: NDArray[np.float64]) -> NDArray[np.float64]:
    kept = np.maximum(shares / shares.sum(), _LEAST_SHARE)
    return np.asarray(kept / kept.sum())
