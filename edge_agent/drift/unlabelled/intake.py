"""Features to the channels that are judged one by one: at most 256, however many features there are.

Up to 256 features are channels themselves. Readings of sensors in a window, named ``name[0]``, ``name[1]`` ... with the
sensors in turn, give three channels a sensor: mean, spread and roughness over the window. Of more than 256 features 64
are channels, and the others are told by 64 sums with random signs, of standardised values; of 3,072 features and more
every third, fifth ... goes into the sums, about 1,024 of them.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.observed import Columns, all_finite

CHANNELS_CAP = 256
ALONE = 64
GROUPS = 64
SUMMED = 1024
"""Features that are summed, about, where there are very many: a sample costs little more, however many it has."""
_SENSORS_CAP = CHANNELS_CAP // 3
_LEAST_WINDOW = 8
_SLICE = 32
_SIGNS_SEED = 20_260_101
_CAP = 4.0
_ELEMENT = re.compile(r"(.*)\[(\d+)\]")

Kind = Literal["features", "windows", "sums"]


@dataclass(frozen=True)
class Intake:
    """How (n, features) become (n, channels).

    Attributes:
        kind: as the module's docstring has it.
        features: expected in a row.
        sensors: of windows; 0 otherwise.
        names, units: of the channels; a window's sensor has three of one name.
        alone: (64,) which features are channels themselves; empty unless ``sums``.
        centre, per_unit: (summed,) float32 of the features that are told by sums; a unit of 0: a channel itself.
    """

    kind: Kind
    features: int
    sensors: int
    names: tuple[str, ...]
    units: tuple[str, ...]
    alone: NDArray[np.int64]
    centre: NDArray[np.float32]
    per_unit: NDArray[np.float32]

    @classmethod
    def of(cls, features: NDArray[Any], names: Sequence[str], units: Sequence[str]) -> "Intake":
        """For (n, f) reference rows, f >= 1.

        Cost: O(n f).
        """
        count = features.shape[1]
        nothing, none = np.zeros(0, np.int64), np.zeros(0, np.float32)
        sensors = windowed_sensors(names)
        if 0 < sensors <= _SENSORS_CAP:
            bases = [_base(name) for name in names[:sensors]] * 3
            return cls("windows", count, sensors, tuple(bases), tuple(units[:sensors]) * 3, nothing, none, none)
        if count <= CHANNELS_CAP:
            return cls("features", count, 0, tuple(names), tuple(units), nothing, none, none)
        alone = np.linspace(0, count - 1, ALONE).astype(np.int64)
        places = np.arange(0, count, stride_of(count))
        centre, per_unit = _scale(features[:, places])
        per_unit[np.isin(places, alone)] = 0.0
        groups = [f"group {number + 1} of {GROUPS}" for number in range(GROUPS)]
        named = (*(names[place] for place in alone), *groups)
        return cls(
            "sums", count, 0, named, (*(units[place] for place in alone), *[""] * GROUPS), alone, centre, per_unit
        )

    @property
    def channels(self) -> int:
        """How many channels there are."""
        return len(self.names)

    @cached_property
    def _summed(self) -> slice:
        stride = 1 if len(self.centre) == self.features else stride_of(self.features)
        return slice(0, len(self.centre) * stride, stride)

    @property
    def columns(self) -> Columns:
        """The features that are looked at, where they are fewer than there are: summed ones, then those that are
        channels themselves; else empty."""
        few = self.kind == "sums" and len(self.centre) + len(self.alone) < self.features
        return (self._summed, self.alone) if few else ()

    @property
    def narrowed(self) -> "Intake":
        """Of rows that have :attr:`columns` alone, the same channels."""
        summed, alone = len(self.centre), len(self.alone)
        return replace(self, features=summed + alone, alone=np.arange(summed, summed + alone))

    @cached_property
    def _reach(self) -> NDArray[np.float32]:
        """(summed,) by how much one may be away from its centre: ``_CAP`` deviations."""
        units = np.abs(self.per_unit)
        return np.asarray(_CAP / np.where(units > 0, units, 1.0), np.float32)

    @cached_property
    def _signed(self) -> NDArray[np.float32]:
        """(summed,) signed units over the root of a group's size; 0 for those that are channels themselves."""
        others = np.flatnonzero(self.per_unit)
        signed = np.zeros(len(self.centre), np.float32)
        signed[others] = np.random.default_rng(_SIGNS_SEED).choice(np.array([-1.0, 1.0], np.float32), len(others))
        return signed * self.per_unit * np.float32(1.0 / np.sqrt(max(1.0, len(others) / GROUPS)))

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """Where each group begins among the summed, so that all have as many that are no channels themselves."""
        others = np.flatnonzero(self.per_unit)
        return others[np.linspace(0, len(others), GROUPS, endpoint=False).astype(np.int64)]

    def all_finite(self, features: NDArray[Any]) -> bool:
        """Whether all that is looked at is finite, as far as channels would not show it.

        Args:
            features: (n, f).
        """
        return self.kind == "features" or all_finite(self.summed(features))

    def summed(self, features: NDArray[Any]) -> NDArray[Any]:
        """(n, f) those that are told by sums: of very many every so-and-so-manieth; a view."""
        return features[:, self._summed] if self.kind == "sums" else features

    def __call__(self, features: NDArray[Any], missing: NDArray[np.bool_] | None) -> NDArray[Any]:
        """(n, channels) float64 (float32 or float64 where features are channels), NaN where a channel has no value.

        Args:
            features: (n, f), finite but where missing.
            missing: (n, f); None: nothing is.

        Cost: O(n f).
        """
        if self.kind == "features":
            return features if missing is None else np.where(missing, np.nan, features)
        if self.kind == "windows":
            return self._summaries(features, missing)
        return self._with_sums(features, missing)

    def _summaries(self, features: NDArray[Any], missing: NDArray[np.bool_] | None) -> NDArray[np.float64]:
        """A sensor without a value in half of a window has no channels there."""
        windows = features.reshape(len(features), -1, self.sensors).astype(np.float64)
        if missing is None:
            spread = windows.std(axis=1)
            rough = np.abs(np.diff(windows, axis=1)).mean(axis=1)
            return np.concatenate([windows.mean(axis=1), spread, rough], axis=1)
        there = ~missing.reshape(windows.shape)
        count = there.sum(axis=1)
        mean = np.where(there, windows, 0.0).sum(axis=1) / np.maximum(count, 1)
        away = np.where(there, windows - mean[:, None], 0.0)
        spread = np.sqrt(np.square(away).sum(axis=1) / np.maximum(count, 1))
        both = there[:, 1:] & there[:, :-1]
        rough = np.where(both, np.abs(np.diff(away, axis=1)), 0.0).sum(axis=1) / np.maximum(both.sum(axis=1), 1)
        enough = 2 * count >= windows.shape[1]
        return np.concatenate([np.where(enough, part, np.nan) for part in (mean, spread, rough)], axis=1)

    def _with_sums(self, features: NDArray[Any], missing: NDArray[np.bool_] | None) -> NDArray[np.float64]:
        """A sum of which something is missing has no value."""
        channels = np.empty((len(features), self.channels))
        alone, sums = channels[:, : len(self.alone)], channels[:, len(self.alone) :]
        alone[:] = features[:, self.alone]
        some, gone = self.summed(features), None if missing is None else self.summed(missing)
        for start in range(0, len(some), _SLICE):
            rows = slice(start, start + _SLICE)
            sums[rows] = self._sums(some[rows], None if gone is None else gone[rows])
        if missing is not None and gone is not None:
            alone[missing[:, self.alone]] = np.nan
            sums[self._lost(gone)] = np.nan
        return channels

    def _sums(self, some: NDArray[Any], gone: NDArray[np.bool_] | None) -> NDArray[np.float32]:
        """(n, 64) of few rows: what is made on the way stays in the processor's cache."""
        told = np.empty(some.shape, np.float32)
        np.subtract(some, self.centre, out=told, casting="same_kind")
        np.minimum(np.maximum(told, -self._reach, out=told), self._reach, out=told)
        told *= self._signed
        if gone is not None:
            told[gone] = 0.0
        return np.asarray(np.add.reduceat(told, self._starts, axis=1))

    def _lost(self, gone: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """(n, 64) sums of which something is missing: without it they vary visibly less than they should."""
        return np.asarray(np.logical_or.reduceat(gone & (self._signed != 0), self._starts, axis=1))


def of_all(features: int, alone: NDArray[np.int64], column: NDArray[np.float32]) -> NDArray[np.float32]:
    """(features,) a column that an older bundle has of those that are no channels themselves; 0 for the channels."""
    whole = np.zeros(features, np.float32)
    whole[np.delete(np.arange(features), alone)] = column
    return whole


def stride_of(features: int) -> int:
    """Of so many features every such a one is summed: odd, so that it is no column of a picture."""
    stride = max(1, features // SUMMED)
    return stride - 1 + stride % 2


def windowed_sensors(names: Sequence[str]) -> int:
    """How many sensors' readings take turns in a window of at least 8 (``feature_names``); 0: this is no window."""
    bases = []
    for name in names:
        found = _ELEMENT.fullmatch(name)
        if found is None:
            return 0
        if found[2] != "0":
            break
        bases.append(found[1])
    sensors = len(bases)
    if sensors < 2 or len(names) % sensors or len(names) // sensors < _LEAST_WINDOW:
        return 0
    fits = all(name == f"{bases[place % sensors]}[{place // sensors}]" for place, name in enumerate(names))
    return sensors if fits else 0


def _base(name: str) -> str:
    found = _ELEMENT.fullmatch(name)
    return found[1] if found else name


def _scale(columns: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    known = np.where(np.isfinite(columns), columns, np.nan).astype(np.float64)
    counts = np.maximum(np.isfinite(known).sum(axis=0), 1)
    mean = np.nansum(known, axis=0) / counts
    spread = np.sqrt(np.nansum(np.square(known - mean), axis=0) / counts)
    flat = spread <= 1e-9 * np.maximum(1.0, np.abs(mean))
    # a constant that changes by a thousandth of its size counts as a whole cap
    spread = np.where(flat, 1e-3 / _CAP * np.where(mean == 0, 1.0, np.abs(mean)), spread)
    return mean.astype(np.float32), (1.0 / spread).astype(np.float32)
