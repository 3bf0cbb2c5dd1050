"""Sequential tests that were candidates for the default monitor, as statistics of many streams at once.

Each is fitted to the bins of a reference as the default is, so that they differ in nothing but the test.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from edge_agent.drift.promise import Fit, StatisticPaths
from edge_agent.drift.promise.blocks import dependence
from edge_agent.drift.sequential.calibration import judged_series, paths_of
from edge_agent.drift.sequential.loss_level import MARGIN
from edge_agent.drift.sequential.table import Distribution, binned

Floats = NDArray[np.float64]
Index = NDArray[np.int64]
# Per-bin values (m,) or (m, k) and bins (streams, batches, size) to statistics (streams, batches).
Recursion = Callable[[Floats, Index], Floats]
EWMA_SHARE = 0.05
ALLOWANCE = 0.05
WINDOWS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)


def fit_of(name: str, losses: Floats) -> Fit:
    """A candidate as calibration takes it, over a reference's rows."""
    distribution = Distribution.of(losses)
    numbers = binned(distribution.knots, losses)
    inflation = dependence(judged_series(losses)).inflation

    def fit(rows: Index) -> StatisticPaths:
        return on_bins(name, distribution.recounted(numbers[rows]), inflation, numbers)

    return fit


def on_bins(name: str, distribution: Distribution, inflation: float, numbers: Index) -> StatisticPaths:
    """A candidate with this distribution, over rows whose bins are ``numbers``."""
    if name == "e-detector":
        return paths_of(distribution, numbers, inflation=inflation)
    values, recursion = CANDIDATES[name](distribution, inflation)
    return lambda index: recursion(values, numbers[index])


def _normal_scores(distribution: Distribution) -> Floats:
    shares = distribution.counts / distribution.counts.sum()
    ranks = np.cumsum(shares) - shares / 2
    scores = ndtri(np.clip(ranks, 0.5 / distribution.counts.sum(), 1 - 0.5 / distribution.counts.sum()))
    centred = scores - shares @ scores
    return np.asarray(centred / max(np.sqrt(shares @ np.square(centred)), 1e-12))


def _cusum(values: Floats, numbers: Index) -> Floats:
    """The largest of several CUSUMs; values are (m, k) increments."""
    flat = numbers.reshape(len(numbers), -1)
    found = np.full(numbers.shape[:2], -np.inf)
    for column in values.T:
        path = np.cumsum(column[flat], axis=1)
        path -= np.minimum(np.minimum.accumulate(path, axis=1), 0)
        np.maximum(found, path.reshape(numbers.shape).max(axis=2), out=found)
    return found


def _ewma(values: Floats, numbers: Index) -> Floats:
    by_time = np.ascontiguousarray(np.moveaxis(numbers, 0, 2))
    level = np.zeros(len(numbers))
    found = np.empty(numbers.shape[:2])
    for batch, rows in enumerate(by_time):
        highest = np.full(len(numbers), -np.inf)
        for row in rows:
            level += EWMA_SHARE * (values[row] - level)
            np.maximum(highest, level, out=highest)
        found[:, batch] = highest
    return found


def _windows(values: Floats, numbers: Index) -> Floats:
    """The latest 8, 16 ... 2048 samples' mean above the reference's, in standard errors, as ADWIN cuts."""
    total = np.cumsum(np.pad(values[numbers.reshape(len(numbers), -1)], ((0, 0), (1, 0))), axis=1)
    found = np.full(numbers.shape[:2], -np.inf)
    for window in WINDOWS:
        if window < total.shape[1]:
            sums = np.full((len(total), total.shape[1] - 1), -np.inf)
            sums[:, window - 1 :] = (total[:, window:] - total[:, :-window]) / np.sqrt(window)
            np.maximum(found, sums.reshape(numbers.shape).max(axis=2), out=found)
    return found


def _make_cusum(distribution: Distribution, inflation: float) -> tuple[Floats, Recursion]:
    return distribution.table(inflation=inflation, margin=MARGIN).increments, _cusum


def _make_ewma(distribution: Distribution, inflation: float) -> tuple[Floats, Recursion]:
    return _normal_scores(distribution), _ewma


def _make_page_hinkley(distribution: Distribution, inflation: float) -> tuple[Floats, Recursion]:
    return (distribution.scores()[0] - ALLOWANCE)[:, None], _cusum


def _make_windows(distribution: Distribution, inflation: float) -> tuple[Floats, Recursion]:
    return distribution.scores()[0], _windows


CANDIDATES: Mapping[str, Callable[[Distribution, float], tuple[Floats, Recursion]]] = MappingProxyType(
    {"CUSUM": _make_cusum, "EWMA": _make_ewma, "Page-Hinkley": _make_page_hinkley, "windows": _make_windows}
)
NAMES = ("e-detector", *CANDIDATES)
