"""Features to the channels that are judged one by one: at most 256, however many features there are.

Up to 256 features are channels themselves. Readings of sensors in a window, named ``name[0]``, ``name[1]`` ... with the
sensors in turn, give three channels a sensor: mean, spread and roughness over the window. Of more than 256 features 192
are channels, and all others are told by 64 sums with random signs, of standardised values.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

CHANNELS_CAP = 256
ALONE = 192
GROUPS = 64
_SENSORS_CAP = CHANNELS_CAP // 3
_LEAST_WINDOW = 8
_LOST_SHARE = 0.02
"""Of a group's features: where more are missing, its sum varies visibly less than it should."""
_SIGNS_SEED = 20_260_101
_CAP = 4.0
_ELEMENT = re.compile(r"(.*)\[(\d+)\]")

Kind = Literal["features", "windows", "groups"]


@dataclass(frozen=True)
class Intake:
    """How (n, features) become (n, channels).

    Attributes:
        kind: as the module's docstring has it.
        features: expected in a row.
        sensors: of windows; 0 otherwise.
        names, units: of the channels; a window's sensor has three of one name.
        alone: (192,) which features are channels themselves; empty unless ``groups``.
        centre, per_unit: (others,) float32 of the features that are told in groups.
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
        rest = np.delete(features, alone, axis=1)
        centre, per_unit = _scale(rest)
        groups = [f"group {number + 1} of {GROUPS}" for number in range(GROUPS)]
        named = (*(names[place] for place in alone), *groups)
        return cls(
            "groups", count, 0, named, (*(units[place] for place in alone), *[""] * GROUPS), alone, centre, per_unit
        )

    @property
    def channels(self) -> int:
        """How many channels there are."""
        return len(self.names)

    @cached_property
    def _others(self) -> NDArray[np.int64]:
        return np.delete(np.arange(self.features), self.alone)

    @cached_property
    def _size(self) -> np.float32:
        """Of the random signs: one over the root of a group's size; a group is a stretch of the others."""
        return np.float32(1.0 / np.sqrt(max(1.0, len(self.centre) / GROUPS)))

    @cached_property
    def _scaled(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(f,) centre, and signed units: 0 for those that are channels themselves, so that nothing is picked out."""
        rng = np.random.default_rng(_SIGNS_SEED)
        signs = rng.choice(np.array([-1.0, 1.0], np.float32), len(self.centre))
        centre, per_unit = np.zeros((2, self.features), np.float32)
        centre[self._others], per_unit[self._others] = self.centre, self.per_unit * signs * self._size
        return centre, per_unit

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        """Where each group begins among all features."""
        return self._others[np.linspace(0, len(self.centre), GROUPS, endpoint=False).astype(np.int64)]

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
        return self._grouped(features, missing)

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

    def _grouped(self, features: NDArray[Any], missing: NDArray[np.bool_] | None) -> NDArray[np.float64]:
        """What is missing among the others counts as their centre; a group of which more is missing has no value."""
        centre, per_unit = self._scaled
        told = features - centre
        told *= per_unit
        np.clip(told, -_CAP * self._size, _CAP * self._size, out=told)
        alone = features[:, self.alone].astype(np.float64)
        if missing is None:
            return np.concatenate([alone, np.add.reduceat(told, self._starts, axis=1)], axis=1)
        told[missing] = 0.0
        alone = np.where(missing[:, self.alone], np.nan, alone)
        sums = np.add.reduceat(told, self._starts, axis=1).astype(np.float64)
        gone = missing.astype(np.float64)
        gone[:, self.alone] = 0.0
        lost = np.add.reduceat(gone, self._starts, axis=1)
        own = np.zeros(self.features)
        own[self._others] = 1.0
        sizes = np.add.reduceat(own, self._starts)
        return np.concatenate([alone, np.where(lost > _LOST_SHARE * sizes, np.nan, sums)], axis=1)


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
