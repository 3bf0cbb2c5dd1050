"""Which false-alarm rates a reference can promise, and the monitors that ask."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.promise.blocks import dependence
from edge_agent.drift.promise.calibrate import SUPPORT_BATCHES
from edge_agent.drift.reference import Reference
from edge_agent.wire.manifest import Manifest, MonitorSpec

RATE_MOST = 0.5
EFFECTIVE_LEAST = 10.0
"""Independent batches. On a reference with fewer what judges without labels promises nothing unless that is asked for,
and only warns: it would be more than a false alarm in 20 batches. With fewer batches of rows it is left out."""

Made = tuple[MonitorSpec, Mapping[str, NDArray[Any]]]
"""The manifest's entry, and its arrays without the monitor's prefix."""


@dataclass(frozen=True)
class Asked:
    """What a monitor is calibrated to.

    Args:
        rate: false alarms a batch.
        aimed: the reference does not support the rate: it is aimed at, and not promised.
        rng: the only source of chance.
        progress: told the share of the work that is done.
    """

    batch_size: int
    rate: float
    rng: np.random.Generator
    progress: Callable[[float], None]
    aimed: bool = False


@dataclass(frozen=True)
class Maker:
    """How one monitor is calibrated to a rate.

    Args:
        name: in the manifest.
        series: (n,) or (n, k) what the monitor judges, by which the lowest rate is known beforehand.
        calibrate: gives the monitor.
        least_batches, least_rows: with fewer rows it is left out where nothing was asked for.
        decides: whether its alarms are flags also where the reference can promise little; else it then only warns.
    """

    name: str
    series: Callable[[Reference, int], NDArray[Any]]
    calibrate: Callable[[Reference, Asked], Made]
    least_batches: float = 0.0
    least_rows: int = 0
    decides: bool = False


@dataclass(frozen=True)
class PlainMaker:
    """How a monitor is made that promises no rate that one could ask for."""

    name: str
    calibrate: Callable[[Reference, Manifest, int, np.random.Generator], Made]


@dataclass(frozen=True)
class Support:
    """What a reference is worth to a monitor.

    Args:
        lowest_rate: false alarms a batch that can be promised; 0.5 where that would be more.
        effective_batches: as many independent ones say as much.
        block_rows: rows that depend on each other; 1: their order says nothing.
    """

    lowest_rate: float
    effective_batches: float
    block_rows: int

    @property
    def promises(self) -> bool:
        """Whether any rate can be promised at all."""
        return self.lowest_rate < RATE_MOST

    @classmethod
    def of(cls, series: NDArray[Any], batch_size: int) -> "Support":
        """By a monitor's own series.

        Cost: O(k n log n).
        """
        depends = dependence(series)
        effective = len(series) / (batch_size * depends.inflation)
        return cls(min(RATE_MOST, SUPPORT_BATCHES / effective), effective, depends.block_rows)
