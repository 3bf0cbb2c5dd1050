"""The label-free monitor's promise on rows that nobody has seen: made worlds, and held-out stretches of real ones."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from edge_agent.drift.observed import Observed
from edge_agent.drift.promise.blocks import Blocks
from edge_agent.drift.promise.calibrate import lowest_rate
from edge_agent.drift.reference import Reference
from edge_agent.drift.unlabelled.calibrate import calibrated
from edge_agent.drift.unlabelled.fitting import fitted, judged_series
from edge_agent.drift.unlabelled.params import LabelFreeParams
from edge_agent.drift.unlabelled.paths import stream_maxima
from tests.benchmarks.drift_data.label_free import observed
from tests.benchmarks.drift_data.tasks import TASKS, load
from tests.benchmarks.false_alarms_data.level import Rate, count
from tests.benchmarks.false_alarms_data.worlds import BATCH, Floats

CLASSES = 3
_HIDDEN = 12
_ROWS_AT_ONCE = 64_000
_STREAM_BATCHES_MOST = 2000
# A reference that supports no lower rate is not calibrated by: it says nothing.
_HIGHEST_RATE = 0.3
Draw = Callable[[int, int, np.random.Generator], Observed]
"""Streams, rows of each, and the only source of chance, to all streams' samples one after the other."""


@dataclass(frozen=True, slots=True)
class Rows:
    """An endless stationary stream of samples, as a fixed random net serves them.

    Attributes:
        kind: ``independent``, ``correlated``, ``heavy`` (t with 3 degrees of freedom, together) or ``mixed`` features
            (switches, long tails, values cut at 0, rounded ones).
        features: how many.
        phi: correlation of neighbouring rows.
    """

    kind: str
    features: int
    phi: float = 0.0

    @property
    def name(self) -> str:
        """In tables."""
        return f"{self.kind}{f', AR(1) {self.phi:g}' if self.phi else ''}, {self.features} features"

    def draw(self, streams: int, length: int, rng: np.random.Generator) -> Observed:
        """Samples of streams that begin anywhere."""
        law = np.random.default_rng(self.features)
        mixing = law.normal(size=(self.features, self.features)) + 1.5 * np.eye(self.features)
        hidden = law.normal(size=(self.features, _HIDDEN)) * 1.5 / np.sqrt(self.features)
        head = law.normal(size=(_HIDDEN, CLASSES))
        rows = self._features(rng.normal(size=(streams, length, self.features)), mixing, rng)
        embeddings = np.maximum(np.tanh(rows / 3) @ hidden, 0)
        return observed(rows, (embeddings @ head).astype(np.float32), embeddings.astype(np.float32))

    def _features(self, steps: Floats, mixing: Floats, rng: np.random.Generator) -> Floats:
        if self.phi:
            begin = rng.normal(size=(len(steps), 1, self.features)) * self.phi
            steps = lfilter([np.sqrt(1 - self.phi**2)], [1.0, -self.phi], steps, axis=1, zi=begin)[0]
        rows: Floats = steps.reshape(-1, self.features)
        if self.kind == "independent":
            return rows
        rows = rows @ (mixing / np.sqrt(np.square(mixing).sum(axis=0)))
        if self.kind == "heavy":
            return rows / np.sqrt(rng.chisquare(3, (len(rows), 1)) / 3)
        return _mixed(rows) if self.kind == "mixed" else rows


def _mixed(rows: Floats) -> Floats:
    kinds = np.arange(rows.shape[1]) % 5
    made = (rows, rows > 1.0, np.exp(1.5 * rows), np.maximum(rows, 0.0), np.round(2.0 * rows))
    return np.select([kinds == number for number in range(5)], made)


WORLDS = (
    ("independent", 0.0),
    ("mixed", 0.0),
    ("correlated", 0.0),
    ("heavy", 0.0),
    ("correlated", 0.3),
    ("mixed", 0.6),
    ("independent", 0.9),
)
FEATURES = (2, 8, 16, 64)


def unseen(number: int, rows: int, lowest: float, alarms: int) -> Rate | None:
    """A whole calibration on one made reference, at the lowest rate that it supports above ``lowest``, and the rate of
    its threshold on new rows of its world; None: it supports none."""
    kind, phi = WORLDS[number % len(WORLDS)]
    world = Rows(kind, FEATURES[number % len(FEATURES)], phi)
    rng = np.random.default_rng([number, rows, 5])
    reference = _reference(world.draw(1, rows, rng), CLASSES)
    return _judged("unseen", f"{world.name}, {rows} rows", reference, world.draw, lowest, alarms, rng)


def held_out(name: str, folder: Path, lowest: float, alarms: int) -> Iterator[Rate]:
    """Half of a real stretch calibrates, the other half is drawn in blocks of a tenth of it.

    The halves are the earlier and the later one, and tenths in turn; of rows that have no order, five times rows drawn
    at random instead.
    """
    task, rng = load(name, folder), np.random.default_rng(6)
    tenths = np.array_split(np.arange(len(task.pool)), 10)
    if task.ordered or task.block > 1 or name == "insects":
        halves = [
            ("later half", np.concatenate(tenths[:5]), np.concatenate(tenths[5:])),
            ("tenths in turn", np.concatenate(tenths[::2]), np.concatenate(tenths[1::2])),
        ]
    else:
        orders = [rng.permutation(len(task.pool)) for _ in range(5)]
        halves = [
            (f"drawn half {number}", order[: len(order) // 2], order[len(order) // 2 :])
            for number, order in enumerate(orders, start=1)
        ]
    judged = task.net.judge(task.pool)
    every = observed(task.pool.features, judged.outputs.astype(np.float32), judged.embeddings.astype(np.float32))
    for words, first, second in halves:
        blocks = Blocks.of(len(second), max(1, len(second) // 10) if len(halves) == 2 else 1)

        def draw(
            streams: int,
            length: int,
            rng: np.random.Generator,
            blocks: Blocks = blocks,
            second: NDArray[np.int64] = second,
        ) -> Observed:
            return _rows(every, second[blocks.streams(streams, length, rng).ravel()])

        reference = _reference(_rows(every, first), task.net.classes or None)
        found = _judged("held out", f"{name}, {words}", reference, draw, lowest, alarms, rng)
        if found is not None:
            yield found


def _judged(
    part: str, case: str, reference: Reference, draw: Draw, lowest: float, alarms: int, rng: np.random.Generator
) -> Rate | None:
    fit = fitted(reference, batch_size=BATCH, rate=0.5, rng=np.random.default_rng(0))
    rate = max(lowest, lowest_rate(judged_series(fit.params.scoring, fit.scores), batch_size=BATCH))
    if rate > _HIGHEST_RATE:
        return None
    monitor, _ = calibrated(reference, batch_size=BATCH, rate=rate, rng=rng)
    return Rate(part, case, rate, *count(_paths(monitor, draw, rate, rng), monitor.threshold, int(alarms / rate)))


def _paths(monitor: LabelFreeParams, draw: Draw, rate: float, rng: np.random.Generator) -> Iterator[Floats]:
    batches = min(_STREAM_BATCHES_MOST, int(2 / rate))
    streams = max(1, _ROWS_AT_ONCE // (batches * BATCH))
    while True:
        scores = monitor.scoring(draw(streams, batches * BATCH, rng)).scores
        yield stream_maxima(monitor, scores.reshape(streams, batches, BATCH, -1).mean(axis=2))


def _rows(every: Observed, rows: NDArray[np.int64]) -> Observed:
    assert every.embeddings is not None
    return observed(every.features[rows], every.outputs[rows], every.embeddings[rows])


def _reference(seen: Observed, classes: int | None) -> Reference:
    count = seen.features.shape[1]
    return Reference(
        observed=seen,
        losses=np.zeros(len(seen)),
        labels=seen.outputs.argmax(axis=1) if classes else seen.outputs[:, 0],
        classes=classes,
        segments=np.zeros(len(seen), np.int64),
        names=tuple(f"feature {number}" for number in range(count)),
        units=("",) * count,
    )


REAL = tuple(TASKS)
