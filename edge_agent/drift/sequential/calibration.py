"""The ``loss-level`` monitor of one model, from losses on held-out data."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.promise import Promise, StatisticPaths, calibrate
from edge_agent.drift.promise.blocks import dependence
from edge_agent.drift.promise.calibrate import UNSHOWN
from edge_agent.drift.sequential.loss_level import MARGIN, LossLevelParams
from edge_agent.drift.sequential.mixture import statistics
from edge_agent.drift.sequential.table import Distribution, binned
from edge_agent.wire.manifest import MonitorSpec

# Where the reference has no loss that could ever raise the statistic, its streams say nothing of the world's. Then the
# threshold is that which holds for independent samples, log(samples between alarms), less this.
_BELOW_PROVEN = 1.0
# A level that is slightly wrong shows over longer streams than outer draws are run on: the limit's distance from the
# point threshold is multiplied by this. Measured on 7 references worth 500 batches at 1e-3: 2 exceed 1.5x without it,
# 1 with it.
_LONG_STREAMS = 1.8
# A rate that is only aimed at is not worth the streams that a promise is: the threshold is found to 0.3 of its
# logarithmic scale, and what the reference leaves unsure is several times that.
_EFFORT_AIMED = 0.25
# Such a threshold is widened as much as that of a reference worth so many batches, and no more. Measured on 256 and 490
# losses of AR(1) 0.9, batches of 32, six references each: 7e-5 alarms a batch at most for 2e-3 aimed at, a tripled loss
# told after 26 batches; widened by all that so short a reference asks for, 0 and 46 to 58.
_WIDENED_TO = 10.0
# False alarms a batch whose threshold is simulated where fewer are aimed at. Below it the threshold rises as the rate's
# logarithm, as that of a sum of likelihood ratios does (Shiryaev-Roberts: the mean run is at least its exponential).
_SIMULATED_AIM = 2e-3


def judged_series(losses: NDArray[Any]) -> NDArray[np.float64]:
    """(n, 3) what the monitor makes of losses: the series whose autocorrelation says what a reference supports.

    Raises:
        DataError: not one dimension, or no finite loss.
    """
    distribution = Distribution.of(losses)
    series: NDArray[np.float64] = distribution.scores().T[binned(distribution.knots, losses)]
    return series


def calibrate_loss_level(
    losses: NDArray[Any],
    *,
    batch_size: int,
    rate: float,
    rng: "np.random.Generator",
    segments: NDArray[np.int64] | None = None,
    unsupported: bool = False,
    progress: Callable[[float], None] | None = None,
) -> tuple[MonitorSpec, dict[str, NDArray[Any]]]:
    """Calibrate the monitor to a false-alarm rate.

    Args:
        losses: (n,) per-sample losses, in the order in which the samples were measured, on data that neither training
            nor evaluation uses; one that is not finite counts as larger than all others.
        batch_size: labelled samples a batch.
        rate: false alarms a batch, 0 < rate < 1.
        rng: the source of the resampling.
        segments: (n,) rising numbers of stretches without a gap; None: all is one.
        unsupported: also for a rate that the losses do not support, which is then aimed at and not promised.
        progress: told the share that is done, 0 to 1.

    Returns:
        The manifest's ``loss-level`` entry, and its arrays by name (without the prefix).

    Raises:
        DataError: too few losses for that rate (the lowest is named), not one dimension, or none finite.

    Cost: 3 s at 1e-3, and about 10 s at 1e-4 and below, for batches of 32; unsupported half a second.
    """
    params, promise = fitted(
        losses,
        batch_size=batch_size,
        rate=rate,
        rng=rng,
        segments=segments,
        unsupported=unsupported,
        progress=progress,
    )
    return params.to_spec(promise)


def fitted(
    losses: NDArray[Any],
    *,
    batch_size: int,
    rate: float,
    rng: "np.random.Generator",
    segments: NDArray[np.int64] | None = None,
    unsupported: bool = False,
    progress: Callable[[float], None] | None = None,
) -> tuple[LossLevelParams, Promise]:
    """The same as the monitor's params and the promise."""
    values = np.asarray(losses, np.float64)
    distribution = Distribution.of(values)
    series = judged_series(values)
    inflation = dependence(series).inflation
    effective = len(series) / (batch_size * inflation)
    numbers = binned(distribution.knots, values)

    def fit(rows: NDArray[np.int64]) -> StatisticPaths:
        return paths_of(distribution.recounted(numbers[rows]), numbers, inflation=inflation)

    simulated = max(rate, _SIMULATED_AIM) if unsupported else rate
    promise = _raised(
        calibrate(
            fit,
            series,
            batch_size=batch_size,
            rate=simulated,
            rng=rng,
            segments=segments,
            unsupported=unsupported,
            unshown=UNSHOWN * math.sqrt(min(1.0, effective / _WIDENED_TO)) if unsupported else UNSHOWN,
            effort=_EFFORT_AIMED if unsupported else 1.0,
            progress=progress,
        ),
        rate,
    )
    threshold = max(promise.threshold, math.log(batch_size / rate) - math.log(inflation) - _BELOW_PROVEN)
    params = LossLevelParams(
        threshold=threshold,
        warning_threshold=min(threshold, max(promise.warning_threshold, threshold - _WARNING_BELOW)),
        batch_size=batch_size,
        inflation=inflation,
        distribution=distribution,
    )
    return params, promise


def _raised(promise: Promise, rate: float) -> Promise:
    """With what longer streams show, and for a rate that may be below the one that was simulated."""
    uncertain = promise.threshold - promise.point_threshold
    threshold = promise.point_threshold + _LONG_STREAMS * uncertain + math.log(promise.rate / rate)
    return replace(
        promise,
        rate=rate,
        threshold=threshold,
        warning_threshold=promise.warning_threshold + threshold - promise.threshold,
        evidence=f"{promise.evidence}; {threshold:.4g} with what longer streams show of a wrong level",
    )


def paths_of(
    distribution: Distribution, numbers: NDArray[np.int64], *, inflation: float, margin: float = MARGIN
) -> StatisticPaths:
    """The monitor with this distribution, over the rows whose bins are ``numbers``."""
    table = distribution.table(inflation=inflation, margin=margin)

    def paths(index: NDArray[np.int64]) -> NDArray[np.float64]:
        return statistics(table, numbers[index])

    return paths


_WARNING_BELOW = math.log(10.0)
