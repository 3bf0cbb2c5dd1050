"""Measured false-alarm rates: of the mechanism, on unseen data, and on held-out stretches."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift import loss_rise
from edge_agent.drift.calibration import calibrate_loss_rise
from edge_agent.drift.promise import StatisticPaths, calibrate
from edge_agent.drift.promise.blocks import Blocks, dependence
from edge_agent.drift.promise.calibrate import lowest_rate, simulated
from edge_agent.drift.sequential.calibration import fitted, judged_series, paths_of
from edge_agent.drift.sequential.loss_level import WARMUP_BATCHES, WARMUP_MARGIN
from edge_agent.drift.sequential.mixture import statistics as statistics_of
from edge_agent.drift.sequential.table import Distribution, binned
from edge_agent.drift.sequential.usual import usual_losses
from tests.benchmarks.false_alarms_data.candidates import fit_of, on_bins
from tests.benchmarks.false_alarms_data.worlds import BATCH, Floats, Stretch, World

STREAM_BATCHES_MOST = 2000
_CHUNK_STREAMS = 100
# A reference that supports no lower one is not calibrated by: it says nothing.
_HIGHEST_RATE = 0.3
Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Rate:
    """False alarms counted until each stream's first.

    Attributes:
        part: of the benchmark.
        case: data and rule.
        promised: a batch; 0: nothing is.
        alarms: counted.
        batches: in which they were counted.
        delay: batches until a real drift was told; None: not measured.
    """

    part: str
    case: str
    promised: float
    alarms: int
    batches: int
    delay: float | None = None

    @property
    def measured(self) -> float:
        """A batch."""
        return self.alarms / self.batches

    @property
    def ratio(self) -> float:
        """Measured over promised; NaN where nothing is promised."""
        return self.measured / self.promised if self.promised else float("nan")


def first_alarms(statistics: Floats, threshold: float) -> tuple[int, int]:
    """Alarms, and batches up to each stream's first or its end."""
    above = statistics > threshold
    found = above.any(axis=1)
    return int(found.sum()), int(np.where(found, above.argmax(axis=1) + 1, above.shape[1]).sum())


def count(statistics: Iterator[Floats], threshold: float, batches: int) -> tuple[int, int]:
    """The same over parts, until so many batches were looked at."""
    alarms = seen = 0
    for part in statistics:
        found, looked = first_alarms(part, threshold)
        alarms, seen = alarms + found, seen + looked
        if seen >= batches:
            break
    return alarms, seen


def _stream_batches(rate: float) -> int:
    """Two alarms long, since what comes after the first does not count."""
    return min(STREAM_BATCHES_MOST, int(2 / rate))


def resampled(paths: StatisticPaths, blocks: Blocks, rate: float, rng: np.random.Generator) -> Iterator[Floats]:
    """Statistics over ever other streams of a reference."""
    while True:
        yield paths(blocks.batches(_CHUNK_STREAMS, _stream_batches(rate), BATCH, rng))


def fresh(
    world: World,
    distribution: Distribution,
    on: Callable[[Index], StatisticPaths],
    rate: float,
    rng: np.random.Generator,
) -> Iterator[Floats]:
    """Statistics over ever new streams of a world."""
    shape = _CHUNK_STREAMS, _stream_batches(rate), BATCH
    index = np.arange(np.prod(shape)).reshape(shape)
    while True:
        losses = world.losses(shape[0], shape[1] * BATCH, rng)
        yield on(binned(distribution.knots, losses.ravel()))(index)


def mechanism(name: str, losses: Floats, rate: float, batches: int, seed: int) -> Rate:
    """The threshold for all rows of a reference, on other resamples of it."""
    distribution = Distribution.of(losses)
    depends = dependence(judged_series(losses))
    blocks = Blocks.of(len(losses), depends.block_rows)
    paths = paths_of(distribution, binned(distribution.knots, losses), inflation=depends.inflation)
    own, other = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    threshold = simulated(paths, blocks, batch_size=BATCH, rate=rate, rng=own).threshold_at(rate)
    return Rate("mechanism", name, rate, *count(resampled(paths, blocks, rate, other), threshold, batches))


def unseen(world: World, rate: float, effective: float, batches: int, seed: int, name: str = "e-detector") -> Rate:
    """A whole calibration on one reference, and the rate of its threshold on new data."""
    rng = np.random.default_rng([seed, 2])
    losses = world.reference(effective, rng)
    distribution, series = Distribution.of(losses), judged_series(losses)
    rate = max(rate, lowest_rate(series, batch_size=BATCH))
    if name == "e-detector":
        _, promise = fitted(losses, batch_size=BATCH, rate=rate, rng=rng)
    else:
        promise = calibrate(fit_of(name, losses), series, batch_size=BATCH, rate=rate, rng=rng)
    inflation = dependence(series).inflation
    streams = fresh(world, distribution, lambda numbers: on_bins(name, distribution, inflation, numbers), rate, rng)
    case = f"{name}, {world.name}, {effective:g} effective"
    return Rate("unseen", case, rate, *count(streams, promise.threshold, batches))


def after_warmup(world: World, rate: float, effective: float, batches: int, seed: int) -> Rate:
    """The rate after an activation that changes nothing: the level is told by the warm-up, the threshold is that of the
    promise."""
    rng = np.random.default_rng([seed, 3])
    params, _ = fitted(world.reference(effective, rng), batch_size=BATCH, rate=rate, rng=rng)
    warmup = world.losses(1, WARMUP_BATCHES * BATCH, rng)[0]
    usual = Distribution.of(usual_losses(params.distribution, warmup, inflation=params.inflation))
    table = usual.table(inflation=params.inflation, margin=WARMUP_MARGIN, body_rows=len(warmup) + 1)

    def on(numbers: Index) -> StatisticPaths:
        return lambda index: statistics_of(table, numbers[index])

    return Rate("warm-up", world.name, rate, *count(fresh(world, usual, on, rate, rng), params.threshold, batches))


def held_out(stretch: Stretch, rate: float, batches: int, seed: int) -> list[Rate]:
    """Calibrated on half of a stretch, at the lowest rate above ``rate`` that it supports; judged on the other half.

    The halves are the earlier and the later one, and tenths in turn. What is judged is drawn in blocks of a tenth of
    it, so that its own slow changes stay in.
    """
    rng = np.random.default_rng([seed, 4])
    tenths = np.array_split(np.arange(len(stretch.first)), 10)
    halves = {
        "later half": (np.concatenate(tenths[:5]), np.concatenate(tenths[5:])),
        "tenths in turn": (np.concatenate(tenths[::2]), np.concatenate(tenths[1::2])),
    }
    found = []
    for name, (reference, after) in halves.items():
        found += _judged(f"{stretch.name}, {name}", stretch.first[reference], stretch.first[after], rate, batches, rng)
    return found


def _judged(
    name: str, reference: Floats, after: Floats, rate: float, batches: int, rng: np.random.Generator
) -> list[Rate]:
    lowest = lowest_rate(judged_series(reference), batch_size=BATCH)
    promised = max(rate, lowest)
    found = []
    blocks = Blocks.of(len(after), max(1, len(after) // 10))
    if promised < _HIGHEST_RATE:
        params, _ = fitted(reference, batch_size=BATCH, rate=promised, rng=rng)
        paths = paths_of(params.distribution, binned(params.distribution.knots, after), inflation=params.inflation)
        counted = count(resampled(paths, blocks, promised, rng), params.threshold, batches)
        found.append(Rate("held out", f"{name}, loss-level", promised, *counted))
    streams = after[blocks.batches(4, max(1, min(batches, 8000) // 4), BATCH, rng)]
    return found + _rules(name, reference, streams, rng)


def _rules(name: str, reference: Floats, streams: Floats, rng: np.random.Generator) -> list[Rate]:
    """Algorithm 4 as published, and today's calibrated rule, by firings (each forgets what was before)."""
    clip = calibrate_loss_rise(reference, batch_size=BATCH, classes=None, rng=rng)
    rules = {
        "Algorithm 4, gamma 0.1": (loss_rise.published(batch_size=BATCH), 0.0),
        "loss-rise": (loss_rise.LossRiseParams.from_spec(clip), clip.false_alarm_rate),
    }
    found = []
    for rule, (params, promised) in rules.items():
        firings = sum(loss_rise.run(params, loss_rise.LossRiseState.start(params), s)[0].firings for s in streams)
        found.append(Rate("held out", f"{name}, {rule}", promised, firings, streams.shape[0] * streams.shape[1]))
    return found
