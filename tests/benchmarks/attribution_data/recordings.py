"""Recorded features whose sensors are then made to drift: a stretch that nothing else happens in."""

import gzip
import io
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.cohorts_data.gas import read_batch

TURBINE = ("AT", "AP", "AH", "AFDP", "GTEP", "TIT", "TAT", "TEY", "CDP", "CO", "NOX")
TURBINE_UNITS = ("°C", "mbar", "%", "mbar", "mbar", "°C", "°C", "MWh", "mbar", "mg/m³", "mg/m³")
_INSECTS_ROWS = 4800
_SENSORS, _FEATURES = 16, 8


@dataclass(frozen=True)
class Recording:
    """Features of one stretch, in time order.

    Attributes:
        features: (n, f) float32.
        labels: (n,) class numbers or targets.
        classes: None: a regression.
        names, units: f each.
    """

    features: NDArray[np.float32]
    labels: NDArray[np.float64]
    classes: int | None
    names: tuple[str, ...]
    units: tuple[str, ...]


def gas(folder: Path) -> Recording:
    """16 gas sensors' steady state change of resistance, batch 3."""
    samples = read_batch(folder, 3)
    names = tuple(f"sensor {number + 1}" for number in range(_SENSORS))
    features = samples.features[:, ::_FEATURES].copy()
    return Recording(features, samples.labels.astype(np.float64), 6, names, ("Ω",) * _SENSORS)


def turbine(folder: Path) -> Recording:
    """The plant's nine process measurements of 2011; the target is NOx."""
    with gzip.open(folder / "gas_turbine" / "gt_2011.csv.gz", "rt") as file:
        table = np.loadtxt(file, delimiter=",")
    return Recording(table[:, :9].astype(np.float32), table[:, 10], None, TURBINE[:9], TURBINE_UNITS[:9])


def insects(folder: Path) -> Recording:
    """33 features of the optical insect sensor, the first 4,800 rows: before the temperature changes."""
    with zipfile.ZipFile(folder / "insects_gradual_balanced.zip") as archive:
        table = np.loadtxt(io.BytesIO(archive.read(archive.namelist()[0])), delimiter=",", max_rows=_INSECTS_ROWS)
    labels = np.unique(table[:, -1], return_inverse=True)[1].astype(np.float64)
    names = tuple(f"feature {number + 1}" for number in range(table.shape[1] - 1))
    classes = int(labels.max()) + 1
    return Recording(table[:, :-1].astype(np.float32), labels, classes, names, ("",) * len(names))


RECORDINGS: Mapping[str, Callable[[Path], Recording]] = {"gas": gas, "turbine": turbine, "insects": insects}
