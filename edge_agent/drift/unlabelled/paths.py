"""The label-free monitor over many streams of batches side by side, for its calibration."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.unlabelled.filters import GAINS, MEMORIES
from edge_agent.drift.unlabelled.params import LabelFreeParams
from edge_agent.drift.unlabelled.signals import BEFORE, remembered

STREAMS_AT_ONCE = 16
_VALUES_GATHERED = 1 << 19  # at a time: about what a processor's cache holds


def batch_means(scores: NDArray[np.float32], index: NDArray[np.int64]) -> NDArray[np.float32]:
    """(streams, batches, columns) means of the rows (streams, batches, batch_size) of (n, columns) scores.

    Cost: O(rows x columns).
    """
    found = np.empty((*index.shape[:2], scores.shape[1]), np.float32)
    batches, means = index.reshape(-1, index.shape[2]), found.reshape(-1, scores.shape[1])
    step = max(1, _VALUES_GATHERED // (index.shape[2] * scores.shape[1]))
    for start in range(0, len(batches), step):
        some = slice(start, start + step)
        np.mean(scores.take(batches[some], axis=0), axis=1, out=means[some])
    return found


def stream_statistics(
    params: LabelFreeParams, means: NDArray[np.float32], levels: NDArray[np.float32] | None = None
) -> Iterator[NDArray[np.float32]]:
    """Batch after batch the (streams, statistics) of a monitor that starts afresh on each stream.

    Args:
        means: (streams, batches, columns + directions) mean scores.
        levels: (streams, columns + directions) levels to compare with; None: the reference's.

    Cost: O(streams x columns) a batch, many times.
    """
    columns = params.scoring.columns
    level = params.level if levels is None else levels[:, :columns]
    memory = np.zeros((len(means), len(MEMORIES), columns), np.float32)
    signals = np.zeros((len(means), 3, len(params.signal_level)), np.float32)
    signals[:, 1:] = params.signal_level if levels is None else params.signal_vector(levels)[:, None]
    moved, change = np.empty((len(means), columns), np.float32), np.empty_like(memory)
    for batch in range(means.shape[1]):
        mean = means[:, batch]
        np.subtract(mean[:, :columns], level, out=moved)
        moved *= params.per_deviation
        np.subtract(moved[:, None], memory, out=change)  # as params.followed, in place
        change *= GAINS
        memory += change
        now = params.signal_vector(mean)
        vectors = remembered(signals, now)
        yield params.statistics(memory, vectors)
        signals = vectors[:, 1:]
        signals[:, BEFORE] = now


def stream_maxima(params: LabelFreeParams, means: NDArray[np.float32]) -> NDArray[np.float64]:
    """The monitor's (streams, batches) statistic for (streams, batches, columns + directions) mean scores."""
    found = np.empty(means.shape[:2])
    for start in range(0, len(means), STREAMS_AT_ONCE):
        some = slice(start, start + STREAMS_AT_ONCE)
        for batch, statistics in enumerate(stream_statistics(params, means[some])):
            found[some, batch] = params.scale(statistics).max(axis=1)
    return found
