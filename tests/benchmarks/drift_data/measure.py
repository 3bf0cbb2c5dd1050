"""Rates on stationary streams, delays on drifting ones, and how sure a ratio of delays is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.drift_data.streams import BATCH, Drawn, Streams
from tests.benchmarks.drift_data.tasks import Floats

Index = NDArray[np.intp]
RATES = (3e-3, 1e-3, 3e-4)
TARGET = RATES.index(1e-3)
RESAMPLES, UPPER = 2000, 0.95
NOT_RUN = -2


@dataclass(frozen=True, slots=True)
class Swept:
    """A detector on a task's streams at the thresholds nearest to :data:`RATES`.

    Attributes:
        rates: (k,) measured, a batch of 32; NaN where it was not run.
        alarms: of each kind of drift (k, n) the first alarm's sample, -1 for none, -2 where it was not run.
    """

    rates: Floats
    alarms: Mapping[str, Index]

    def delays(self, kind: str, streams: Streams, which: int = TARGET) -> Floats:
        """(n,) samples from the begin to the alarm, at most what was seen; NaN where it was not run."""
        first, seen = self.alarms[kind][which], streams.lengths - streams.begins
        delays = np.where(first < 0, seen, np.minimum(first - streams.begins + 1, seen)).astype(np.float64)
        return np.where(first == NOT_RUN, np.nan, delays)


# Stream s of a kind of drift ("": stationary), from a sample on, gives the (steps,) statistics.
Path = Callable[[str, int, int], Floats]


def sweep_paths(drawn: Drawn, path: Path, size: int) -> Swept:
    """The same for a monitor that gives a statistic: one run tells the alarms at every threshold.

    The threshold of each rate is the one that gives it most nearly on the stationary streams. A monitor that alarms
    before a drift begins is started anew.

    Args:
        drawn: the streams.
        path: runs the monitor.
        size: samples a step.
    """
    stationary = np.stack([path("", number, 0) for number in range(len(drawn.stationary.lengths))])
    highest = np.maximum.accumulate(stationary, axis=1)
    thresholds, rates = zip(*(_threshold(highest, rate, size) for rate in RATES), strict=True)
    alarms = {}
    for kind, streams in drawn.drifts.items():
        found = np.full((len(RATES), len(streams.begins)), -1)
        for number in range(len(streams.begins)):
            whole = path(kind, number, 0)
            for place, threshold in enumerate(thresholds):
                found[place, number] = _first(path, kind, number, whole, threshold, streams, size)
        alarms[kind] = found
    return Swept(np.array(rates), alarms)


def _first(path: Path, kind: str, number: int, whole: Floats, threshold: float, streams: Streams, size: int) -> int:
    passed, values = 0, whole
    while True:
        above = np.flatnonzero(values > threshold)
        if not len(above):
            return -1
        sample = passed + (int(above[0]) + 1) * size - 1
        if sample >= streams.begins[number]:
            return sample if sample < streams.lengths[number] else -1
        passed = sample + 1
        values = path(kind, number, passed)


def _threshold(highest: Floats, target: float, size: int) -> tuple[float, float]:
    """The value of ``highest`` above which the rate comes nearest to the target, and that rate."""
    tried = np.unique(highest[:, -1])
    tried = np.union1d(tried, np.unique(highest[:, :: max(1, highest.shape[1] // 100)]))
    tried = tried[np.isfinite(tried)]
    low, high = 0, len(tried) - 1
    while low < high:  # the rate falls as the threshold rises
        middle = (low + high) // 2
        if rate_above(highest, tried[middle], size) > target:
            low = middle + 1
        else:
            high = middle
    near = [(value, rate_above(highest, value, size)) for value in tried[max(0, low - 1) : low + 1]]
    return min(near, key=lambda pair: abs(np.log(max(pair[1], 1e-9) / target)))


def rate_above(highest: Floats, threshold: float, size: int) -> float:
    """Alarms over the batches of 32 seen until each stream's first; ``highest`` (streams, steps) never falls."""
    quiet = (highest <= threshold).sum(1)
    alarmed = quiet < highest.shape[1]
    return float(alarmed.sum() / ((quiet + alarmed).sum() * size / BATCH))


def geometric_mean(values: Sequence[float]) -> float:
    """Of positive numbers."""
    return float(np.exp(np.mean(np.log(values))))
