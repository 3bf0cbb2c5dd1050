"""Batch-to-batch rises of a loss, resampled."""

import numpy as np
from numpy.typing import NDArray

# A loss that is not finite, or unclipped and larger than this, counts as this much.
LOSS_CAP = 1e12

_CHUNK_BATCHES = 128


def clip_losses(losses: NDArray[np.float64], clip: float | None) -> NDArray[np.float64]:
    """Losses at most ``clip`` (or ``LOSS_CAP``); one that is not finite counts as that bound.

    Args:
        losses: (n,) per-sample losses, in any unit.
        clip: the bound, > 0, or None.

    Returns:
        (n,) float64, finite.
    """
    bound = LOSS_CAP if clip is None else clip
    return np.minimum(np.where(np.isfinite(losses), losses, bound), bound)


def resampled_rises(
    losses: NDArray[np.float64], *, batch_size: int, lookback: int, draws: int, rng: "np.random.Generator"
) -> NDArray[np.float64]:
    """Rises between random batches drawn from one set of losses.

    A chain of ``draws`` batches is drawn with replacement (the set stands for the population, so
    that a set of a few hundred serves batches of a hundred), and each batch is compared with the
    lowest of the ``lookback`` before it.

    Args:
        losses: (n,) finite, n >= 1.
        batch_size: samples a batch, >= 1.
        lookback: batches before that are looked at, >= 1.
        draws: number of rises, >= 1.
        rng: the only source of chance.

    Returns:
        (draws,) float64.

    Cost:
        O(draws x batch_size) time, O(draws + 128 x batch_size) memory: on a gateway 2048 took 2 MB more, and longer.
    """
    total = draws + lookback
    means = np.empty(total)
    for start in range(0, total, _CHUNK_BATCHES):
        rows = min(_CHUNK_BATCHES, total - start)
        means[start : start + rows] = losses[rng.integers(0, len(losses), (rows, batch_size))].mean(axis=1)
    before: NDArray[np.float64] = np.lib.stride_tricks.sliding_window_view(means[:-1], lookback).min(axis=1)
    rises: NDArray[np.float64] = means[lookback:] - before
    return rises


def linear_quantile(values: NDArray[np.float64], share: float) -> float:
    """The value below which ``share`` of the values lie, between two of them by their distance.

    Args:
        values: (n,) finite, n >= 1.
        share: in [0, 1].

    Source: Hyndman and Fan 1996, definition 7, as ``numpy.quantile``, which on its first call imports a
        module of 1 MB that a gateway needs for nothing else.
    Cost: O(n log n) time, O(n) memory.
    """
    ordered = np.sort(values)
    place = share * (len(ordered) - 1)
    below = int(place)
    low, high = float(ordered[below]), float(ordered[min(below + 1, len(ordered) - 1)])
    part = place - below
    return high - (high - low) * (1 - part) if part >= 0.5 else low + (high - low) * part
