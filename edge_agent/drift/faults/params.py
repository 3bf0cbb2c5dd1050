"""What a reference says of each sensor: how far, how fast and how monotonously it may read."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.faults.channels import Block, Channels
from edge_agent.drift.faults.units import Changes, may_be_turned
from edge_agent.errors import DataError
from edge_agent.wire.manifest import MonitorSpec

NAME = "faults"
BATCH_SIZE = 32
"""Rows a batch, of the stated rate; the screen takes batches of any size."""
STATED_RATE = 1e-3
"""False reports a batch of 32 samples that this screen states; measured: docs/drift.md."""
SPECIALS = 3
"""Values that a sensor may hold for longer than others: its lowest, its highest and its most frequent."""

_AGAIN = "build the bundle again"


@dataclass(frozen=True)
class FaultParams:
    """Limits of c sensors, each float64 in the sensor's unit; see `calibrate`.

    Attributes:
        channels: which sensors there are, and their physical limits.
        low, high: (c,) the reference's range.
        limit_low, limit_high: (c,) beyond them a reading is none; infinite where nothing is known.
        run_limit: (c,) equal readings in a row that are taken for a stuck sensor; infinite: not checked.
        special: (3, c) values that may be held for longer.
        special_limit: (3, c) so much longer; infinite: for ever.
        pile_limit: (2, c) share of a window's readings that may equal its highest, lowest; 1: not checked.
        zero: (c,) 1: a reading of exactly 0 is none; 0: it may be.
        step: (c,) the largest change from one reading to the next.
        mean_low, mean_high, deviation_low, deviation_high: (c,) of 64 readings in a row.
        unit: (c,) 1: a change of unit is looked for; 0: it is not.
        span: (c,) the least difference of highest and lowest among 128 readings in a row; 0: how much a sensor varies
            varies too much to tell when it varies too little.
    """

    channels: Channels
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    limit_low: NDArray[np.float64]
    limit_high: NDArray[np.float64]
    run_limit: NDArray[np.float64]
    special: NDArray[np.float64]
    special_limit: NDArray[np.float64]
    pile_limit: NDArray[np.float64]
    zero: NDArray[np.float64]
    step: NDArray[np.float64]
    mean_low: NDArray[np.float64]
    mean_high: NDArray[np.float64]
    deviation_low: NDArray[np.float64]
    deviation_high: NDArray[np.float64]
    unit: NDArray[np.float64]
    span: NDArray[np.float64]
    rows: int = 0

    @property
    def batch_size(self) -> int:
        """Of the stated rate; any size may be stepped."""
        return BATCH_SIZE

    @classmethod
    def from_spec(cls, spec: MonitorSpec, arrays: Mapping[str, NDArray[Any]], channels: Channels) -> Self:
        """From a bundle: the manifest's entry ``faults`` and its arrays (without the prefix).

        Raises:
            DataError: an array is absent, misshapen or NaN (named).
        """
        count = len(channels.names)
        found: dict[str, NDArray[np.float64]] = {}
        for name in ARRAYS:
            array = arrays.get(name)
            wanted = (*_LEADING.get(name, ()), count)
            if array is None or array.shape != wanted:
                shape = "absent" if array is None else f"of shape {list(array.shape)}"
                raise DataError(f"monitor {NAME!r}: array {name!r} is {shape}, {list(wanted)} is needed", _AGAIN)
            if np.isnan(array).any():
                raise DataError(f"monitor {NAME!r}: array {name!r} has NaN", _AGAIN)
            found[name] = np.ascontiguousarray(array, np.float64)
        rows = spec.parameters.get("rows", 0)
        return cls(channels, **found, rows=int(rows) if isinstance(rows, int) else 0)

    def to_spec(self) -> tuple[MonitorSpec, dict[str, NDArray[np.float64]]]:
        """The manifest's entry, and the arrays by name (without the prefix)."""
        unchecked = [name for name, limit in zip(self.channels.names, self.run_limit, strict=True) if np.isinf(limit)]
        said = f"{self.rows} rows of reference, {len(self.channels.names)} sensors"
        if unchecked:
            said += f"; not looked at for standing still: {', '.join(unchecked[:8])}{' ...' if unchecked[8:] else ''}"
        spec = MonitorSpec(
            parameters={"rows": self.rows}, batch_size=BATCH_SIZE, false_alarm_rate=STATED_RATE, evidence=said
        )
        return spec, {name: getattr(self, name) for name in ARRAYS}

    @cached_property
    def rows_a_look(self) -> int:
        """Samples that are looked at together: what begins or ends among them is told to within a few readings."""
        return max(4, 64 // max((block.readings for block in self.channels.blocks), default=1))

    @cached_property
    def unscreened(self) -> bool:
        """Whether there are values that belong to no sensor."""
        return sum(block.stop - block.start for block in self.channels.blocks) < self.channels.columns

    @cached_property
    def parts(self) -> tuple["PartParams", ...]:
        """The same by blocks of sensors that are screened together."""
        parts: list[PartParams] = []
        first = 0
        for block in self.channels.blocks:
            parts.append(PartParams.of(self, block, first))
            first += block.channels
        return tuple(parts)


@dataclass(frozen=True)
class PartParams:
    """Limits of one block's sensors, ready for use: physical limits are in ``limit_low`` and ``limit_high``, and the
    changes of unit that some sensor may have in ``changes``; ``pile_doubt``: (2, c) share of a window's readings that
    may equal its highest, lowest, where those lie below (2, c) ``pile_inside``, of negatives for the lowest;
    ``square_low``, ``square_high``: (c,) beyond them a mean square of several readings is of another scale."""

    block: Block
    first: int
    arrays: dict[str, NDArray[np.float64]]
    inner_low: NDArray[np.float64]
    inner_high: NDArray[np.float64]
    limit_low: NDArray[np.float64]
    limit_high: NDArray[np.float64]
    run_limit: NDArray[np.float64]
    pile_limit: NDArray[np.float64]
    pile_doubt: NDArray[np.float64]
    pile_inside: NDArray[np.float64]
    square_low: NDArray[np.float64]
    square_high: NDArray[np.float64]
    zero: NDArray[np.bool_] | None
    changes: Changes
    none: NDArray[np.int64]
    once: NDArray[np.float64]

    @classmethod
    def of(cls, params: FaultParams, block: Block, first: int) -> Self:
        """Those from sensor number ``first`` on."""
        cut = slice(first, first + block.channels)
        arrays = {name: getattr(params, name)[..., cut] for name in ARRAYS}
        low, high = _limits(arrays, params.channels, cut)
        inner_low, inner_high = _inner(arrays["low"], arrays["high"])
        looked_at = arrays["unit"] > 0
        zero = arrays["zero"] > 0
        ends = PILE_ENDS * (arrays["high"] - arrays["low"])
        return cls(
            block,
            first,
            arrays,
            np.maximum(np.where(looked_at, inner_low, low), low),
            np.minimum(np.where(looked_at, inner_high, high), high),
            low,
            high,
            arrays["run_limit"],
            arrays["pile_limit"],
            np.where(arrays["pile_limit"] < 1, PILE_DOUBT * (arrays["pile_limit"] - 1 / PILE_WINDOW), 1.0),
            np.array([arrays["high"] - ends, -arrays["low"] - ends]),
            *_squares(arrays),
            zero if zero.any() else None,
            Changes.of(params.channels.units[cut]),
            np.zeros(block.channels, np.int64),
            np.ones(block.channels),
        )


PILE_WINDOW, PILE_DOUBT, PILE_ENDS = 128, 0.75, 0.02
"""A window that piles up at less than the reference's ends, by a fiftieth of its range, may do so three quarters as
often as one that reaches them: there a sensor may stay, as humidity at 100 %."""
MARGIN = 0.05
"""Of the reference's range: a reading so far outside begins to be looked at for a change of unit."""
WIDER, _LEAST_SHARE = 0.25, 1e-12
"""Power of how much the windows' mean squares differ. A turbine's CO, whose windows of a quarter of 2011 differ 5.6
times in scale, came to 3 times the greatest of them later."""
SCALE_FACTOR = 2.5
"""Whatever a sensor's scale may become by ageing is no fault: a factor of 2, and room for noise."""
ARRAYS = tuple(field.name for field in fields(FaultParams) if field.name not in ("channels", "rows"))
_LEADING: dict[str, tuple[int, ...]] = {"special": (SPECIALS,), "special_limit": (SPECIALS,), "pile_limit": (2,)}


def _limits(
    arrays: dict[str, NDArray[np.float64]], channels: Channels, cut: slice
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Finite, with the physical limits; what may be turned round may read the opposite."""
    may_turn = may_be_turned(channels.units[cut])
    low = np.where(may_turn, np.minimum(arrays["limit_low"], -SCALE_FACTOR * arrays["high"]), arrays["limit_low"])
    high = np.where(may_turn, np.maximum(arrays["limit_high"], -SCALE_FACTOR * arrays["low"]), arrays["limit_high"])
    greatest = np.finfo(np.float64).max
    low = np.maximum(np.maximum(low, channels.minimum[cut]), -greatest)
    return low, np.minimum(np.minimum(high, channels.maximum[cut]), greatest)


def _squares(arrays: dict[str, NDArray[np.float64]]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How small and how large a mean square may be: what no ageing brings, and the more the reference's windows differ
    in scale already, the more room."""
    with np.errstate(over="ignore"):
        low, high = np.square(arrays["mean_low"]), np.square(arrays["mean_high"])
        most = np.maximum(low, high) + np.square(arrays["deviation_high"])
        same_side = np.sign(arrays["mean_low"]) * np.sign(arrays["mean_high"]) > 0
        least = np.where(same_side, np.minimum(low, high), 0.0) + np.square(arrays["deviation_low"])
        known = (most > 0) & np.isfinite(most)
        whole = np.where(known, most, 1.0)
        room = SCALE_FACTOR**2 * np.power(whole / np.maximum(np.where(known, least, 1.0), _LEAST_SHARE * whole), WIDER)
        return np.where(known, least / room, -1.0), np.where(known, whole * np.minimum(room, 1e6), np.inf)


def _inner(low: NDArray[np.float64], high: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The range with its margin; a sensor that never came near 0 may not come nearer than by ageing."""
    margin = MARGIN * (high - low)
    below, above = low - margin, high + margin
    below = np.where(low > 0, np.maximum(below, low / SCALE_FACTOR), below)
    return below, np.where(high < 0, np.minimum(above, high / SCALE_FACTOR), above)
