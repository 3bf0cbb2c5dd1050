"""Real sensors: a stretch that calibrates, and what came later."""

import gzip
import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_agent.wire.manifest import FeatureSpec
from server_bridge.demo.recordings import AXES, find_file, load_recordings
from tests.benchmarks.attribution_data.recordings import TURBINE, TURBINE_UNITS
from tests.benchmarks.cohorts_data.gas import read_batch

Readings = NDArray[np.float64]
REMOUNTED = (1, 2, 0, 4, 5, 3)
TURNED = (-1, -1, 1, -1, -1, 1)
WINDOW, STEP, LEARNT = 100, 50, 6
INSECTS_ROWS, ELEC_ROWS, TURBINE_ROWS = 3000, 5000, 2000


@dataclass(frozen=True)
class Recorded:
    """Readings in time order, before and after.

    Attributes:
        reference: (n, ...) that calibrates.
        later: by what it is called.
    """

    name: str
    reference: Readings
    later: dict[str, Readings]
    features: tuple[FeatureSpec, ...] = ()


def recorded(data: Path) -> Iterator[Recorded]:
    """Gas sensors that age, a plant's years, insects, electricity, and a motion sensor that is mounted anew."""
    gas = {number: read_batch(data, number).features.astype(np.float64) for number in range(1, 7)}
    yield Recorded("gas batch 1", gas[1], {f"batch {number}": gas[number] for number in range(2, 7)})
    years = {year: _lines(data / "gas_turbine" / f"gt_{year}.csv.gz", 0) for year in range(2011, 2015)}
    named = tuple(FeatureSpec(name=name, unit=unit) for name, unit in zip(TURBINE, TURBINE_UNITS, strict=True))
    yield Recorded("turbine 2011", years[2011], {str(year): years[year] for year in (2012, 2013, 2014)}, named)
    rest = {"rest of 2011": years[2011][TURBINE_ROWS:]} | {str(year): years[year] for year in (2012, 2013, 2014)}
    yield Recorded(f"turbine, {TURBINE_ROWS} rows", years[2011][:TURBINE_ROWS], rest, named)
    with zipfile.ZipFile(data / "insects_gradual_balanced.zip") as archive:
        insects = np.loadtxt(io.BytesIO(archive.read(archive.namelist()[0])), delimiter=",")[:, :-1]
    yield Recorded(f"INSECTS, {INSECTS_ROWS} rows", insects[:INSECTS_ROWS], {"rest": insects[INSECTS_ROWS:]})
    elec = _lines(data / "elec2.csv.gz", 1)[:, :-1]
    yield Recorded(f"Elec2, {ELEC_ROWS} rows", elec[:ELEC_ROWS], {"rest": elec[ELEC_ROWS:]})
    yield _motion()


def _motion() -> Recorded:
    windows: dict[bool, list[Readings]] = {True: [], False: []}
    for recording in load_recordings(find_file())[0]:
        for start in range(0, len(recording.signal) - WINDOW + 1, STEP):
            windows[recording.subject <= LEARNT].append(recording.signal[start : start + WINDOW].astype(np.float64))
    other = np.stack(windows[False])
    later = {"subjects 7-10": other, "axes swapped": other[:, :, REMOUNTED], "turned": other * np.array(TURNED)}
    features = tuple(FeatureSpec(name=name, unit=unit) for name, unit in AXES)
    return Recorded("motion, subjects 1-6", np.stack(windows[True]), later, features)


def _lines(path: Path, skipped: int) -> Readings:
    with gzip.open(path, "rt") as lines:
        found: Readings = np.loadtxt(lines, delimiter=",", skiprows=skipped)
    return found
