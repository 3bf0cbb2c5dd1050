"""Which values of a sample are readings of which sensor, and in what order they were measured."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.feature_names import feature_names
from edge_agent.wire.manifest import FeatureSpec, Manifest, TensorSpec

SENSORS_CAP = 512
"""Of a bundle: the screen's state is 300 bytes a sensor."""


@dataclass(frozen=True, slots=True)
class Block:
    """Values of a sample that lie together: all readings of some sensors.

    Attributes:
        start: the first column of the flattened sample.
        channels: sensors, >= 1.
        readings: of each sensor in one sample, >= 1; more than one where an input is a window of time.
        time_first: whether the first axis of the window is time.
    """

    start: int
    channels: int
    readings: int = 1
    time_first: bool = True

    @property
    def stop(self) -> int:
        """One past the last column."""
        return self.start + self.channels * self.readings

    def readings_of(self, features: NDArray[Any]) -> NDArray[Any]:
        """(n, f) samples to (n x readings, channels) in the order of time; a view where that is possible."""
        part = features[:, self.start : self.stop]
        if self.readings == 1:
            return part
        if self.time_first:
            return part.reshape(-1, self.channels)
        windows = part.reshape(-1, self.channels, self.readings)
        return windows.transpose(0, 2, 1).reshape(-1, self.channels)

    def columns_of(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The reverse for a mask: (n x readings, channels) to (n, columns of this block)."""
        if self.readings == 1:
            return mask
        width = self.channels * self.readings
        if self.time_first:
            return mask.reshape(-1, width)
        windows = mask.reshape(-1, self.readings, self.channels)
        return windows.transpose(0, 2, 1).reshape(-1, width)


@dataclass(frozen=True, slots=True)
class Channels:
    """The sensors behind a model's inputs.

    Attributes:
        names, units: c entries each.
        minimum, maximum: (c,) float64, physical limits, in the unit; infinite where none is given.
        blocks: where their readings lie, in order.
        columns: values a sample, those of no block among them.
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    minimum: NDArray[np.float64]
    maximum: NDArray[np.float64]
    blocks: tuple[Block, ...]
    columns: int


def channels_of(manifest: Manifest, count: int) -> Channels:
    """The sensors of a bundle.

    An input of two dimensions besides the batch is a window of time: its last axis are the sensors where the manifest
    names as many features, else its shorter axis (the last, if both are alike). Of every other input each value is a
    sensor of its own. Inputs that bring the sensors above ``SENSORS_CAP`` (pictures) have no sensors.

    Args:
        count: values a sample, all inputs flattened side by side.

    Cost: O(count).
    """
    given = manifest.features
    names, units = feature_names(manifest, count)
    low, high = _limits(given, count)
    blocks: list[Block] = []
    named: list[str] = []
    places: list[int] = []
    start = 0
    for spec in manifest.inputs:
        block = _block(spec, start, count, len(given))
        start = block.stop
        if len(places) + block.channels > SENSORS_CAP:
            continue
        blocks = _with(blocks, block)
        apart = 1 if block.time_first else block.readings
        firsts = [block.start + place * apart for place in range(block.channels)]
        places += firsts
        if block.readings == 1 or len(given) == count:
            named += [names[first] for first in firsts]
        elif len(given) == block.channels and len(manifest.inputs) == 1:
            named += [feature.name for feature in given]
        else:
            named += [f"{spec.name}[{place}]" for place in range(block.channels)]
    chosen = np.array(places, np.int64)
    return Channels(
        tuple(named), tuple(units[place] for place in places), low[chosen], high[chosen], tuple(blocks), count
    )


def _block(spec: TensorSpec, start: int, count: int, features: int) -> Block:
    sizes = [size for size in spec.shape[1:] if isinstance(size, int)]
    if len(sizes) != len(spec.shape) - 1:  # a free dimension: only the whole says how many values there are
        return Block(start, count - start)
    if len(sizes) != 2 or min(sizes) < 1:
        return Block(start, math.prod(sizes))
    first, last = sizes
    if last in (features, 1) or (first != features and last <= first):
        return Block(start, last, first)
    return Block(start, first, last, time_first=False)


def _with(blocks: list[Block], block: Block) -> list[Block]:
    """Single readings that lie side by side are one block."""
    if blocks and blocks[-1].readings == 1 and block.readings == 1 and blocks[-1].stop == block.start:
        return [*blocks[:-1], Block(blocks[-1].start, blocks[-1].channels + block.channels)]
    return [*blocks, block]


def _limits(given: list[FeatureSpec], count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(count,) each; a manifest that names fewer features than values names them again and again."""
    if not given or count % len(given):
        return np.full(count, -np.inf), np.full(count, np.inf)
    low = [-math.inf if feature.minimum is None else feature.minimum for feature in given]
    high = [math.inf if feature.maximum is None else feature.maximum for feature in given]
    return np.tile(low, count // len(given)), np.tile(high, count // len(given))
