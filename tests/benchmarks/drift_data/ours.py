"""Our monitors of labelled losses, each as statistics a batch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np

from edge_agent.drift import loss_rise
from edge_agent.drift.promise.blocks import dependence
from edge_agent.drift.sequential.calibration import judged_series
from edge_agent.drift.sequential.table import Distribution, binned
from tests.benchmarks.drift_data.measure import Index, Swept, sweep_paths
from tests.benchmarks.drift_data.streams import BATCH, Drawn
from tests.benchmarks.drift_data.tasks import Floats
from tests.benchmarks.false_alarms_data.candidates import NAMES, on_bins


@dataclass(frozen=True, slots=True)
class Monitor:
    """A labelled monitor with its threshold open.

    Attributes:
        size: samples that it is stepped by.
        fit: (r,) losses of a reference give a function from (streams, steps, size) losses to (streams, steps)
            statistics.
    """

    size: int
    fit: Callable[[Floats], Callable[[Floats], Floats]]


NEVER = 1e12


def fit_loss_rise(reference: Floats) -> Callable[[Floats], Floats]:
    """The published rule with the product's lookback; nothing of the reference is used, its threshold is swept."""
    params = loss_rise.LossRiseParams(gamma=NEVER, batch_size=BATCH)

    def paths(losses: Floats) -> Floats:
        return np.array([[v.statistic for v in loss_rise.run(params, start, stream)[1]] for stream in losses])

    start = loss_rise.LossRiseState.start(params)
    return paths


def fit_candidate(name: str, reference: Floats) -> Callable[[Floats], Floats]:
    """A test that could have been the default, fitted as its calibration does; only the threshold is swept."""
    distribution = Distribution.of(reference)
    inflation = dependence(judged_series(reference)).inflation

    def paths(losses: Floats) -> Floats:
        numbers = binned(distribution.knots, losses.ravel())
        index = np.arange(losses.size, dtype=np.int64).reshape(losses.shape)
        found: Floats = on_bins(name, distribution, inflation, numbers)(index)
        return found

    return paths


# The gateway shows each loss to loss-level as soon as it comes; loss-rise waits for a batch.
MONITORS: Mapping[str, Monitor] = MappingProxyType(
    {"loss-level": Monitor(1, partial(fit_candidate, NAMES[0])), "loss-rise": Monitor(BATCH, fit_loss_rise)}
)
CANDIDATES: Mapping[str, Monitor] = MappingProxyType({name: Monitor(1, partial(fit_candidate, name)) for name in NAMES})
"""`loss-level`'s test first, by the name that it has beside the others."""


def sweep(monitor: Monitor, drawn: Drawn) -> Swept:
    """A monitor's alarms at the rates of the benchmark."""
    fitted = [monitor.fit(judged.losses) for _, judged in drawn.references]
    known: dict[str, Floats] = {}

    def path(kind: str, number: int, first: int) -> Floats:
        streams = drawn.drifts[kind] if kind else drawn.stationary
        if first:
            one: Floats = _statistics(monitor.size, fitted, streams.losses[[number], first:], streams.groups[[number]])[
                0
            ]
            return one
        if kind not in known:
            known[kind] = _statistics(monitor.size, fitted, streams.losses, streams.groups)
        found: Floats = known[kind][number]
        return found

    return sweep_paths(drawn, path, monitor.size)


def _statistics(size: int, fitted: list[Callable[[Floats], Floats]], losses: Floats, groups: Index) -> Floats:
    steps = losses[:, : losses.shape[1] // size * size].reshape(len(losses), -1, size)
    found = np.empty(steps.shape[:2])
    for number, paths in enumerate(fitted):
        if (groups == number).any():
            found[groups == number] = paths(steps[groups == number])
    return found
