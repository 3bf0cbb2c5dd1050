"""The constants of ``loss-level``, and how a bundle holds them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.promise import Promise
from edge_agent.drift.sequential.table import BINS, Distribution
from edge_agent.errors import DataError
from edge_agent.wire.manifest import MonitorSpec, PromiseSpec

NAME = "loss-level"
WARMUP_BATCHES = 8
MARGIN = 0.0
"""Standard errors of the reference's level that a rise must exceed, see ``Distribution.table``."""
WARMUP_MARGIN = 1.0
"""The same for a level that a warm-up told: its samples are few, and no bootstrap has made up for that."""

_AGAIN = "build the bundle again"
_SCALARS = ("threshold", "warning_threshold", "inflation", "margin")


@dataclass(frozen=True, eq=False)
class LossLevelParams:
    """The monitor's constants.

    Attributes:
        threshold: of the statistic, a logarithm; > 0.
        warning_threshold: at most ``threshold``.
        batch_size: labelled samples a batch that the promised rate is about; any number may be stepped.
        inflation: of a mean's variance by the losses' autocorrelation, >= 1.
        distribution: of the reference's losses.
        margin: standard errors by which a rise must exceed what is known of the level, >= 0.
        warmup_batches: batches that tell the level of new weights, >= 1.
    """

    threshold: float
    warning_threshold: float
    batch_size: int
    inflation: float
    distribution: Distribution
    margin: float = MARGIN
    warmup_batches: int = WARMUP_BATCHES

    def __post_init__(self) -> None:
        """Refuse constants outside their range, by name."""
        checks = {
            "threshold": math.isfinite(self.threshold) and self.threshold > 0,
            "warning_threshold": self.warning_threshold <= self.threshold,
            "batch_size": self.batch_size >= 1,
            "inflation": math.isfinite(self.inflation) and self.inflation >= 1,
            "margin": math.isfinite(self.margin) and self.margin >= 0,
            "warmup_batches": self.warmup_batches >= 1,
        }
        for name, right in checks.items():
            if not right:
                raise DataError(f"monitor {NAME}: {name} = {getattr(self, name)} is out of range", _AGAIN)

    @classmethod
    def from_spec(cls, spec: MonitorSpec, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """From a bundle: the manifest's entry and its arrays (without the prefix).

        Raises:
            DataError: a constant or an array is absent, of another kind, or out of range (named).
        """
        found = {name: _number(spec, name) for name in _SCALARS}
        return cls(
            batch_size=spec.batch_size,
            warmup_batches=int(_number(spec, "warmup_batches")),
            distribution=distribution_of(arrays),
            **found,
        )

    def to_spec(self, promise: Promise) -> tuple[MonitorSpec, dict[str, NDArray[Any]]]:
        """The manifest's entry, and the arrays by name (without the prefix)."""
        scalars: dict[str, bool | int | float | str] = {name: getattr(self, name) for name in _SCALARS}
        spec = MonitorSpec(
            parameters=scalars | {"warmup_batches": self.warmup_batches},
            batch_size=self.batch_size,
            false_alarm_rate=promise.rate,
            evidence=promise.evidence,
            promise=PromiseSpec(
                lowest_rate=min(1.0, promise.lowest_rate),
                block_rows=promise.block_rows,
                effective_batches=promise.effective_batches,
            ),
        )
        return spec, arrays_of(self.distribution)


def arrays_of(distribution: Distribution) -> dict[str, NDArray[Any]]:
    """A distribution as arrays by name."""
    return {"knots": distribution.knots, "counts": distribution.counts, "levels": distribution.levels}


def distribution_of(arrays: Mapping[str, NDArray[Any]]) -> Distribution:
    """The distribution that :func:`arrays_of` gave.

    Raises:
        DataError: an array is absent, of another kind, or makes no sense (named).
    """
    knots = array_of(arrays, "knots", BINS, np.float64)
    counts = array_of(arrays, "counts", BINS + 1, np.float64)
    levels = array_of(arrays, "levels", BINS + 1, np.float64)
    if not (np.isfinite(knots).all() and np.isfinite(levels).all() and (np.diff(knots) >= 0).all()):
        raise DataError(f"monitor {NAME}: knots or levels are not finite, or knots do not ascend", _AGAIN)
    if not (np.isfinite(counts).all() and (counts >= 0).all() and counts[-1] > 0):
        raise DataError(f"monitor {NAME}: counts are no counts", _AGAIN)
    return Distribution(knots, counts, levels)


def array_of(arrays: Mapping[str, NDArray[Any]], name: str, size: int, dtype: Any) -> NDArray[Any]:
    """The (size,) array of this name and dtype.

    Raises:
        DataError: it is absent, or of another kind (named).
    """
    array = arrays.get(name)
    if array is None or array.shape != (size,) or array.dtype != dtype:
        found = "is absent" if array is None else f"is {array.dtype} of shape {array.shape}"
        raise DataError(f"monitor {NAME}: array {name!r} {found}, {np.dtype(dtype)} of ({size},) is needed", _AGAIN)
    return array


def _number(spec: MonitorSpec, name: str) -> float:
    value = spec.parameters.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"monitor {NAME}: {name} = {value!r} is no number", _AGAIN)
    return float(value)
