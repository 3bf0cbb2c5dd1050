"""Stationary streams and streams that drift at a known sample, made of real rows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.drift_data.tasks import Floats, Judged, Net, Rows, Task

Index = NDArray[np.intp]
BATCH = 32
CONSTRUCTED = ("sudden", "gradual", "recurring", "incremental")
KINDS = (*CONSTRUCTED, "real")
# How long the gradual and the incremental drift take, and each visit of the recurring one, in samples.
GRADUAL, VISIT, INCREMENTAL = 1000, 250, 1500
# Mean loss of the new concept above that of the old, in standard deviations of a sample's loss.
RISES = (0.25, 0.5, 1.0)
# Without labels: the largest shift of a feature, in its standard deviations.
SHIFTS = (0.25, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is drawn of one task.

    Attributes:
        references: the draws of a reference; streams are dealt to them in turn.
        stationary: streams without drift.
        batches: of 32 in each of them.
        starts: streams of each kind of drift.
        before: the fewest and the most samples before a drift; drifts begin anywhere in a batch.
        after: samples after its begin; what is later is not seen.
    """

    references: int = 8
    stationary: int = 120
    batches: int = 400
    starts: int = 120
    before: tuple[int, int] = (400, 1600)
    after: int = 4000


@dataclass(frozen=True, slots=True)
class Streams:
    """s streams of t samples; what lies beyond a stream's length is not to be read.

    Attributes:
        losses, errors: (s, t) of the net.
        begins: (s,) where the drift begins; the length where there is none.
        lengths: (s,) samples in each stream.
        groups: (s,) the number of the reference.
        features: (s, t, f) float32, outputs (s, t, k), embeddings (s, t, d); None where labels are there.
    """

    losses: Floats
    errors: Floats
    begins: Index
    lengths: Index
    groups: Index
    features: NDArray[np.float32] | None = None
    outputs: NDArray[np.float32] | None = None
    embeddings: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True)
class Drawn:
    """A task's references (each in order), stationary streams, and streams of each kind of drift."""

    task: Task
    references: list[tuple[Rows, Judged]]
    stationary: Streams
    drifts: Mapping[str, Streams]


def draw(task: Task, extent: Extent, seed: int, *, wide: bool = False) -> Drawn:
    """All streams of a task; the same for the same seed.

    Args:
        task: the net and its data.
        extent: how much.
        seed: any whole number.
        wide: features, outputs and embeddings are kept, and only inputs change.
    """
    rng = np.random.default_rng([seed, *map(ord, task.name)])
    draws = _Draws(task, extent, wide, rng)
    references = []
    for _ in range(extent.references):
        rows = task.pool.take(resample(len(task.pool), task.reference_size, task.block, rng))
        references.append((rows, task.net.judge(rows)))
    return Drawn(task, references, draws.stationary(), {kind: draws.drifting(kind) for kind in KINDS})


def resample(rows: int, size: int, block: int, rng: np.random.Generator) -> Index:
    """(size,) row numbers by blocks of neighbours that begin anywhere."""
    firsts = rng.integers(0, rows, -(-size // block))
    return ((firsts[:, None] + np.arange(block)) % rows).ravel()[:size]


@dataclass(frozen=True, slots=True)
class _Draws:
    """Streams of one task, in turn."""

    task: Task
    extent: Extent
    wide: bool
    rng: np.random.Generator

    def stationary(self) -> Streams:
        """Blocks of the pool."""
        extent, task = self.extent, self.task
        length, count = extent.batches * BATCH, extent.stationary
        numbers = np.stack([resample(len(task.pool), length, task.block, self.rng) for _ in range(count)])
        lengths = np.full(count, length)
        judged = task.net.judge(task.pool)
        return Streams(
            judged.losses[numbers],
            judged.errors[numbers],
            lengths,
            lengths,
            np.arange(count) % extent.references,
            *((v.astype(np.float32)[numbers] for v in _wide(task.pool, judged)) if self.wide else ()),
        )

    def drifting(self, kind: str) -> Streams:
        """One stream for each start."""
        extent = self.extent
        begins = self.rng.integers(*extent.before, extent.starts, endpoint=True)
        found: list[list[NDArray[Any]]] = []
        for number, begin in enumerate(begins):
            rows = self._one(kind, number, int(begin))
            judged = self.task.net.judge(rows)
            more = [v.astype(np.float32) for v in _wide(rows, judged)] if self.wide else []
            found.append([judged.losses, judged.errors, *more])
        losses, errors, *more = (np.stack(column) for column in zip(*found, strict=True))
        return Streams(
            losses, errors, begins, begins + extent.after, np.arange(extent.starts) % extent.references, *more
        )

    def _one(self, kind: str, number: int, begin: int) -> Rows:
        task, rng, width = self.task, self.rng, self.extent.before[1] + self.extent.after
        rows = task.pool.take(resample(len(task.pool), width, task.block, rng))
        if kind == "real":
            return _joined(rows.take(np.arange(begin)), _later(task, number, width - begin, rng))
        share = SHARES[kind](np.arange(width) - begin, rng)
        size = number // 2 % len(RISES)
        if self.wide:
            return shifted(rows, share, SHIFTS[size], rng)
        if number % 2:
            return moved_labels(task.net, rows, share, RISES[size], task.pool, rng)
        return moved_inputs(task.net, rows, share, RISES[size], task.pool, rng)


def _wide(rows: Rows, judged: Judged) -> tuple[Floats, Floats, Floats]:
    return rows.features, judged.outputs, judged.embeddings


def _joined(first: Rows, second: Rows) -> Rows:
    return Rows(np.concatenate([first.features, second.features]), np.concatenate([first.labels, second.labels]))


def _later(task: Task, number: int, size: int, rng: np.random.Generator) -> Rows:
    """Rows of one later stretch, the stretches in turn, from a row drawn at random (in order, where it has one)."""
    stretch = task.later[number % len(task.later)]
    if not task.ordered:
        return stretch.take(rng.integers(0, len(stretch), size))
    first = rng.integers(0, max(1, len(stretch) - size))
    return stretch.take((first + np.arange(size)) % len(stretch))


def shifted(rows: Rows, share: Floats, size: float, rng: np.random.Generator) -> Rows:
    """A quarter of the features shifted by up to ``size`` of their deviations, whatever the loss does."""
    count = rows.features.shape[1]
    shift = np.zeros(count)
    chosen = rng.permutation(count)[: -(-count // 4)]
    shift[chosen] = rng.choice([-size, size], len(chosen)) * rng.uniform(0.5, 1.0, len(chosen))
    return Rows(rows.features + shift * share[:, None], rows.labels)


def moved_inputs(net: Net, rows: Rows, share: Floats, rise: float, pool: Rows, rng: np.random.Generator) -> Rows:
    """A quarter of the features shifted and scaled so that the pool's mean loss rises as asked for."""
    count = rows.features.shape[1]
    chosen = rng.permutation(count)[: -(-count // 4)]
    shift, scale = np.zeros(count), np.zeros(count)
    shift[chosen] = rng.choice([-1.0, 1.0], len(chosen)) * rng.uniform(0.5, 1.0, len(chosen))
    scale[chosen] = rng.uniform(-0.1, 0.2, len(chosen))

    def move(some: Rows, strength: float, share: Floats) -> Rows:
        by = (strength * share)[:, None]
        return Rows(np.clip(some.features * (1 + scale * by) + shift * by, -20, 20), some.labels)

    strength = _strength(net, pool, rise, lambda some, size: move(some, size, np.ones(len(some))))
    return move(rows, strength, share)


def moved_labels(net: Net, rows: Rows, share: Floats, rise: float, pool: Rows, rng: np.random.Generator) -> Rows:
    """Classes turned by one for so large a part of the samples, or values raised so far, that the loss rises so."""

    def move(some: Rows, strength: float, share: Floats, chance: Floats) -> Rows:
        if not net.classes:
            return Rows(some.features, some.labels + strength * share)
        turned = chance < strength / 4 * share
        return Rows(some.features, np.where(turned, (some.labels + 1) % net.classes, some.labels))

    tried = rng.random(len(pool))
    strength = _strength(net, pool, rise, lambda some, size: move(some, size, np.ones(len(some)), tried))
    return move(rows, strength, share, rng.random(len(rows)))


def _strength(net: Net, pool: Rows, rise: float, move: Callable[[Rows, float], Rows], most: float = 4.0) -> float:
    """The smallest strength up to ``most`` at which the pool's mean loss has risen so far."""
    before = net.judge(pool).losses
    goal = before.mean() + rise * before.std()
    low, high = 0.0, most
    for _ in range(12):
        middle = (low + high) / 2
        if net.judge(move(pool, middle)).losses.mean() < goal:
            low = middle
        else:
            high = middle
    return high


def _sudden(since: Index, rng: np.random.Generator) -> Floats:
    return np.asarray(since >= 0, np.float64)


def _gradual(since: Index, rng: np.random.Generator) -> Floats:
    return np.asarray(rng.random(len(since)) < since / GRADUAL, np.float64)


def _recurring(since: Index, rng: np.random.Generator) -> Floats:
    return np.asarray((since >= 0) & (since // VISIT % 2 == 0), np.float64)


def _incremental(since: Index, rng: np.random.Generator) -> Floats:
    return np.asarray(np.clip(since / INCREMENTAL, 0, 1), np.float64)


SHARES: Mapping[str, Callable[[Index, np.random.Generator], Floats]] = MappingProxyType(
    {"sudden": _sudden, "gradual": _gradual, "recurring": _recurring, "incremental": _incremental}
)
