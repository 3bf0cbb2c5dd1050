"""``python -m tests.benchmarks sensor_faults``: how often drift is taken for a fault, and which faults are found.

False reports: the screen calibrated on a stretch, run over what came later (which drifts). Found: a fault put into one
sensor for 300 samples of what came later, at a place of its own each time. Cost: CPU a batch of 32 samples.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift import faults
from edge_agent.drift.faults import FaultParams, FaultReport, FaultState
from edge_agent.drift.observed import Observed
from tests.benchmarks.faults_data.injected import DRIFTS, FAULTS, Change
from tests.benchmarks.faults_data.recorded import Readings, Recorded, recorded
from tests.benchmarks.report import RESULTS, machine
from tests.drift.faults.sensors import manifest_of, params_of
from tests.shared_data import DATA

BATCH, BEFORE, LASTS, AFTER = 32, 64, 300, 300
PLACES, QUICK_PLACES = 60, 6
FAHRENHEIT = "unit: 1.8 x + 32"
"""Of sensors that may measure a temperature, as far as their unit says."""
CHOSEN = ("turbine 2011", "INSECTS", "motion")


@dataclass(frozen=True, slots=True)
class Quiet:
    """What the screen said of later readings without a fault put in."""

    reference: str
    later: str
    sensors: int
    rows: int
    reports: list[str]
    masked_rows: int
    cpu_us_a_batch: float


@dataclass(frozen=True, slots=True)
class Found:
    """How often a change put into one sensor was told as a fault, under which names."""

    reference: str
    change: str
    places: int
    told: int
    named: dict[str, int]
    others: int
    masked: float


def main(arguments: Sequence[str]) -> None:
    """Run, print a line each, keep the results where asked."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks sensor_faults")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_PLACES} places a fault: a minute")
    parser.add_argument("--save", action="store_true", help="keep the results under docs/benchmarks")
    options = parser.parse_args(arguments)
    quiet: list[Quiet] = []
    found: list[Found] = []
    for one in recorded(DATA):
        params = params_of(one.reference, manifest_of(one.reference.shape[1:], features=one.features))
        quiet += [_quiet(one, params, name) for name in one.later]
        if one.name.startswith(CHOSEN):
            places = QUICK_PLACES if options.quick else PLACES
            for name, change in {**FAULTS, **DRIFTS}.items():
                if name != FAHRENHEIT or {"", "°C"} & set(params.channels.units):
                    found.append(_found(one, params, name, change, places))
    if options.save:
        results = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "machine": machine()}
        tables = {"quiet": [asdict(each) for each in quiet], "found": [asdict(each) for each in found]}
        path = RESULTS / "sensor_faults.json"
        path.write_text(json.dumps(results | tables, indent=1) + "\n", encoding="utf-8")


def _screened(params: FaultParams, readings: Readings) -> tuple[NDArray[np.bool_], list[FaultReport], float]:
    """Broken readings, what was told, and the CPU seconds that it took."""
    state = FaultState.start(params)
    masked = np.zeros((len(readings), params.channels.columns), np.bool_)
    reports: list[FaultReport] = []
    spent_s = 0.0
    flat = readings.reshape(len(readings), -1)
    for start in range(0, len(flat), BATCH):
        part = flat[start : start + BATCH]
        seen = Observed([], np.arange(start, start + len(part), dtype=np.float64), part, part[:, :0])
        began_s = time.process_time()
        state, said = faults.step(params, state, seen)
        spent_s += time.process_time() - began_s
        reports += said.reports
        if said.faulty is not None:
            masked[start : start + len(part)] = said.faulty
    return masked, reports, spent_s


def _quiet(one: Recorded, params: FaultParams, name: str) -> Quiet:
    readings = one.later[name]
    masked, reports, spent_s = _screened(params, readings)
    told = [
        f"{each.kind.word} {each.name} from row {each.since_s:.0f}, {each.value:.6g} {each.detail}".strip()
        for each in reports
        if each.until_s is None
    ]
    batches = len(readings) / BATCH
    result = Quiet(
        one.name,
        name,
        len(params.channels.names),
        len(readings),
        told,
        int(masked.any(axis=1).sum()),
        round(spent_s / batches * 1e6, 1),
    )
    print(f"{one.name:22s} {name:14s} {result.rows:6d} rows  reports {len(told):2d}  masked {result.masked_rows:5d}"
          f"  {result.cpu_us_a_batch:6.1f} us a batch  {told[:3]}", flush=True)  # fmt: skip
    return result


def _found(one: Recorded, params: FaultParams, name: str, change: Change, places: int) -> Found:
    rng = np.random.default_rng(0)
    later = next(iter(one.later.values()))
    told = others = 0
    named: dict[str, int] = {}
    masked: list[float] = []
    warm = [sensor for sensor, unit in enumerate(params.channels.units) if unit in ("", "°C")]
    sensors = warm if name == FAHRENHEIT else list(range(later.shape[-1]))
    for _ in range(places):
        sensor = int(rng.choice(sensors))
        start = int(rng.integers(0, len(later) - BEFORE - LASTS - AFTER))
        readings = later[start : start + BEFORE + LASTS + AFTER].copy()
        part = readings[BEFORE : BEFORE + LASTS, ..., sensor]
        readings[BEFORE : BEFORE + LASTS, ..., sensor] = change(part, one.reference[..., sensor], rng)
        mask, reports, _ = _screened(params, readings)
        begun = [each for each in reports if each.until_s is None]
        mine = [each for each in begun if each.sensor == sensor]
        told += bool(mine)
        others += len(mine) < len(begun)
        if mine:
            word = f"{mine[0].kind.word} {mine[0].detail}".strip()
            named[word] = named.get(word, 0) + 1
        masked.append(float(mask[BEFORE : BEFORE + LASTS].any(axis=1).mean()))
    result = Found(one.name, name, places, told, named, others, round(float(np.mean(masked)), 3))
    print(f"{one.name:22s} {name:36s} {told:2d} of {places}, other sensors {others}, rows masked {result.masked:.2f}"
          f"  {named}", flush=True)  # fmt: skip
    return result
