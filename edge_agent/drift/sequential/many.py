"""Several blocks of samples at once: as `mixture.advance` block after block, bit for bit, while nothing is cut down.

Within a block all but what came before is known from its samples alone, for all blocks in the same few operations.
What came before enters each tilt's sum, and its climb, by a sum and a product: plain numbers follow that.
"""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.sequential.mixture import BLOCK, CLIMB, RECENT, Evidence, Past
from edge_agent.drift.sequential.table import Table

Floats = NDArray[np.float64]
_Numbers = list[float]


class _Blocks(NamedTuple):
    """k blocks, side by side, as far as they do not depend on what came before but for the level.

    Attributes:
        passed: (BLOCK, k, tilts) running sums of the increments.
        path: their exponentials.
        begun: (BLOCK, k, tilts) over ``path``, the sums that begin within the block.
        scores: (k, kinds) sums.
    """

    passed: Floats
    path: Floats
    begun: Floats
    scores: Floats

    @classmethod
    def of(cls, past: Past, table: Table, numbers: NDArray[np.int64]) -> "_Blocks":
        count = numbers.shape[1]
        places = (past.count // BLOCK + np.arange(count - 1)) % RECENT
        old = np.add.accumulate(np.concatenate((past.old[None], past.recent[places])), axis=0)
        olds = np.maximum(past.count // BLOCK + np.arange(count) - RECENT, 0) * BLOCK
        increments = table.increments.take(numbers, axis=0)
        # one by one as matrices of a row: a product's last bit depends on how many rows it has
        increments -= table.corrections(old[:, None], olds[:, None, None])[:, 0]
        passed = _summed(increments)
        path = np.exp(passed)
        begun = np.empty_like(path)
        begun[0] = 1.0
        np.divide(1.0, path[:-1], out=begun[1:])
        begun = _summed(begun)
        begun *= table.weights
        return cls(passed, path, begun, np.add.reduce(table.scores.take(numbers, axis=0), axis=0))

    def sums(self, before: Floats) -> Floats:
        """(k, tilts) the mixture's parts before each block."""
        now: _Numbers = before.tolist()
        found = [now]
        for path, begun in zip(self.path[-1, :-1].tolist(), self.begun[-1, :-1].tolist(), strict=True):
            now = [factor * (begins + one) for factor, begins, one in zip(path, begun, now, strict=True)]
            found.append(now)
        return np.array(found)

    def climbs(self, before: Floats) -> Floats:
        """(k + 1, tilts) the climbs before each block and after all, none cut down."""
        now: _Numbers = before.tolist()
        found = [now]
        lowest = np.minimum.reduce(self.passed, axis=0).tolist()
        for ends, falls in zip(self.passed[-1].tolist(), lowest, strict=True):
            now = [
                end + one - (low if (low := fall + one) < 0.0 else 0.0)
                for end, fall, one in zip(ends, falls, now, strict=True)
            ]
            found.append(now)
        return np.array(found)


def _summed(rows: Floats) -> Floats:
    """``rows`` in their place as running sums along the first axis: a row at a time is faster than ``accumulate``."""
    for before, row in pairwise(rows):
        np.add(before, row, out=row)
    return rows


def advance_blocks(
    evidence: Evidence, table: Table, numbers: NDArray[np.int64], levels: Floats, most: float
) -> tuple[Evidence, Floats] | None:
    """The next full blocks of one stream.

    Args:
        evidence: after full blocks; not changed.
        table: what bins say.
        numbers: (k, BLOCK) bins of the samples, in order, 1 <= k <= ``RECENT``.
        levels: (k, BLOCK) float64, their losses, finite.
        most: as for `mixture.advance`.

    Returns:
        The evidence, and the (k,) largest statistic within each block; None: something has to be cut down, or the
        evidence does not end with a block.

    Cost: O(samples x tilts); the calls are those of two blocks.
    """
    if evidence.past.count % BLOCK:
        return None
    blocks = _Blocks.of(evidence.past, table, np.ascontiguousarray(numbers.T))
    climbs = blocks.climbs(evidence.climbs)
    if climbs.max() > CLIMB * most:
        return None
    begun = blocks.begun
    begun += blocks.sums(evidence.sums)
    path = np.multiply(blocks.path, begun, out=begun)
    largest = np.maximum.reduce(np.add.reduce(path, axis=2), axis=0)
    statistics = np.log(largest)
    if statistics.max() > most:
        return None
    runs, losses = _lengths(evidence, blocks.passed, climbs, levels)
    following = Evidence(path[-1, -1].copy(), climbs[-1], runs, losses, _followed(evidence.past, blocks.scores))
    return following, statistics


def _lengths(evidence: Evidence, passed: Floats, climbs: Floats, levels: Floats) -> tuple[NDArray[np.int64], Floats]:
    """How long each tilt has climbed after all blocks, and its losses meanwhile."""
    paths, count = passed, len(levels)
    paths += climbs[:-1]
    # a tilt has climbed since it was last as low as it had ever been in the block, if that was not above 0
    fell = np.minimum.reduce(paths, axis=0) <= 0.0
    since = np.where(fell, paths[::-1].argmin(axis=0), BLOCK)
    total = np.zeros((count, BLOCK + 1))
    np.add.accumulate(levels[:, ::-1], axis=1, out=total[:, 1:])
    runs, losses = evidence.runs, evidence.losses
    # what came before the block in which each tilt has fallen last says nothing more
    first = int(np.where(np.logical_or.reduce(fell, axis=0), count - 1 - fell[::-1].argmax(axis=0), 0).min())
    for place in range(first, count):
        falls, told = fell[place], total[place].take(since[place])
        runs, losses = since[place] + np.where(falls, 0, runs), np.where(falls, told, losses + told)
    return runs, losses


def _followed(past: Past, scores: Floats) -> Past:
    """After k full blocks with these sums."""
    count = past.count // BLOCK
    places = (count + np.arange(len(scores))) % RECENT
    old = np.add.accumulate(np.concatenate((past.old[None], past.recent[places])), axis=0)[-1]
    recent = past.recent.copy()
    recent[places] = past.block + scores
    return Past(past.count + len(scores) * BLOCK, old, recent, np.zeros_like(past.block))
