"""Samples to the mean scores of batches, which is all that the monitor judges."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.observed import Observed
from edge_agent.drift.unlabelled.params import LabelFreeParams
from edge_agent.drift.unlabelled.scoring import Scored

_LARGEST = 1e30  # of a mean that is told: larger ones have no square


class BatchMeans(NamedTuple):
    """g batches of n samples as the monitor sees them.

    Attributes:
        mean: (g, columns + directions) float32 mean scores.
        away: (g, channels) float32 by how much each channel's mean is above its level, in its unit.
        scores: (g, n, columns + directions) float32, what is missing filled in.
        channels: (g, n, channels) in their own units, filled in too.
        rows: g numbers of samples that had a reading.
    """

    mean: NDArray[np.float32]
    away: NDArray[np.float32]
    scores: NDArray[np.float32]
    channels: NDArray[Any]
    rows: tuple[int, ...]


def batch_means(params: LabelFreeParams, seen: Observed, level: NDArray[np.float32]) -> BatchMeans:
    """What is left of batches; each is what it would be alone, bit for bit.

    Args:
        seen: g >= 1 batches of ``params.batch_size`` samples, one after the other.
        level: (columns + directions,) what a missing reading counts as.

    Raises:
        DataError: samples of another shape than the reference's.

    Cost: O(samples (c^2 + d m)); the calls are one batch's, where nothing is missing.
    """
    size = params.batch_size
    if seen.faulty is not None and seen.broken_rows is None:
        seen = replace(seen, faulty=None, broken=None)
    quick = params.scoring.quick(seen, size)
    if quick is not None:
        found = _means(params, quick, (size,) * (len(seen) // size))
        # what is not finite in any row is not finite in a sum
        if np.isfinite(np.add.reduce(found.mean, axis=None) + np.add.reduce(found.away, axis=None)):
            return found
    if len(seen) == size:
        return _filled(params, seen, level)
    each = [batch_means(params, seen.part(start, start + size), level) for start in range(0, len(seen), size)]
    return BatchMeans(
        np.concatenate([one.mean for one in each]),
        np.concatenate([one.away for one in each]),
        np.concatenate([one.scores for one in each]),
        np.concatenate([one.channels for one in each]),
        tuple(one.rows[0] for one in each),
    )


def _means(params: LabelFreeParams, scored: Scored, rows: tuple[int, ...]) -> BatchMeans:
    ones = np.full(params.batch_size, 1.0 / params.batch_size, np.float32)
    scores, channels = (array.reshape(-1, len(ones), array.shape[1]) for array in (scored.scores, scored.channels))
    away = np.empty((len(channels), channels.shape[2]), np.float32)
    np.subtract(ones @ channels, params.channel_level, out=away)
    return BatchMeans(ones @ scores, away, scores, channels, rows)


def _filled(params: LabelFreeParams, batch: Observed, level: NDArray[np.float32]) -> BatchMeans:
    """One batch of which something is missing: it counts as at its level."""
    scored, rows = params.scoring(batch), params.batch_size
    if not scored.whole:
        gone = np.isnan(scored.scores)
        rows = int((~gone[:, : params.scoring.columns]).any(axis=1).sum())
        seen = np.where(np.isnan(scored.channels), params.channel_level, scored.channels)
        scored = Scored(np.where(gone, level, scored.scores), seen, True)
    found = _means(params, scored, (rows,))
    return found._replace(away=np.clip(found.away, -_LARGEST, _LARGEST))
