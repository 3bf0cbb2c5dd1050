"""``python -m tests.benchmarks false_alarms [--quick]``: is the promised false-alarm rate kept?

Mechanism: the threshold on other resamples of what calibrated it. Unseen: many whole calibrations, each on new data of
its world. Warm-up: the same after an activation, the level being told by 256 losses. Held out: real stretches after the
one that calibrated, today's rules beside it. Peers: river's detectors at their defaults.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from tests.benchmarks.false_alarms_data.candidates import NAMES
from tests.benchmarks.false_alarms_data.defaults import peers_at_defaults
from tests.benchmarks.false_alarms_data.level import Rate, after_warmup, held_out, mechanism, unseen
from tests.benchmarks.false_alarms_data.rise_chart import chart
from tests.benchmarks.false_alarms_data.short_real import short_real
from tests.benchmarks.false_alarms_data.worlds import WORLDS, stretch, stretches
from tests.benchmarks.report import RESULTS, machine
from tests.shared_data import DATA

DRAWN = "insects"
"""The stretch whose losses are drawn: on its later half the promise is not kept."""
PARTS = ("mechanism", "unseen", "warm-up", "held-out", "candidates", "peers")


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured.

    Attributes:
        rates: of the mechanism.
        batches: of each mechanism's measurement.
        calibrations: of each unseen case.
        unseen_batches: in which each is judged.
    """

    rates: tuple[float, ...] = (1e-3, 1e-4)
    batches: int = 1_000_000
    calibrations: int = 50
    unseen_batches: int = 100_000


QUICK = Extent(rates=(1e-2,), batches=20_000, calibrations=4, unseen_batches=5000)


def main(arguments: Sequence[str]) -> None:
    """Run the parts, print the rates."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks false_alarms")
    parser.add_argument("--quick", action="store_true", help="few batches: seconds")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS, help="default: all")
    parser.add_argument("--save", action="store_true", help="keep the parts that were run under docs/benchmarks")
    options = parser.parse_args(arguments)
    os.nice(19)
    found: list[Rate] = []
    for part in options.parts:
        began_s = time.process_time()
        try:
            for rate in RUNS[part](QUICK if options.quick else Extent()):
                print(line(rate), flush=True)
                found.append(rate)
        except KeyboardInterrupt:
            print("  stopped: what was measured up to here counts")
            break
        print(f"  {part}: {time.process_time() - began_s:.0f} s CPU", flush=True)
    for words in summaries(found):
        print(words)
    if options.save:
        print(f"saved: {save(found, RESULTS).name}")
        if "held-out" in options.parts:
            drawn = chart(stretch(DRAWN, DATA))
            (RESULTS / f"false_alarms_{DRAWN}.svg").write_text(drawn, encoding="utf-8")


def line(rate: Rate) -> str:
    """One measurement for people."""
    return (
        f"  {rate.part:10s} {rate.case:44s} promised {rate.promised:8.2g}  measured {rate.measured:9.3g}  "
        f"ratio {rate.ratio:5.2f}  {rate.alarms} in {rate.batches}"
        f"{'' if rate.delay is None else f'  told after {rate.delay:.1f}'}"
    )


def run_mechanism(extent: Extent) -> Iterator[Rate]:
    """Generated streams, references of 5,000 effective batches, and all real stretches."""
    for rate in extent.rates:
        for world in WORLDS:
            losses = world.reference(5 / 1e-3 if rate <= 1e-3 else 500, np.random.default_rng(0))
            yield mechanism(world.name, losses, rate, extent.batches, 0)
        for one in stretches(DATA) if DATA.is_dir() else []:
            yield mechanism(one.name, one.first, rate, extent.batches, 0)


def run_unseen(extent: Extent) -> Iterator[Rate]:
    """Calibrations of 5,000 effective batches at 1e-3, and of the fewest supported."""
    for number in range(extent.calibrations):
        world = WORLDS[number % len(WORLDS)]
        if extent.unseen_batches >= 50_000:
            yield unseen(world, 1e-3, 5000, extent.unseen_batches, number)
            yield unseen(world, 1e-3, 500, extent.unseen_batches, number)
        yield unseen(world, 1e-2, 50, extent.unseen_batches // 5, number)


def run_warm_up(extent: Extent) -> Iterator[Rate]:
    """After an activation."""
    for number in range(extent.calibrations):
        yield after_warmup(WORLDS[number % len(WORLDS)], 1e-2, 500, extent.unseen_batches // 5, number)


def run_held_out(extent: Extent) -> Iterator[Rate]:
    """Real stretches."""
    if not DATA.is_dir():
        raise SystemExit("false_alarms: not run: data absent")
    for one in stretches(DATA):
        yield from held_out(one, 1e-3, extent.batches // 10, 0)


def run_candidates(extent: Extent) -> Iterator[Rate]:
    """Other tests on short references, calibrated as the default is: of generated streams, and of real ones."""
    for number in range(extent.calibrations // 5):
        for real in stretches(DATA) if DATA.is_dir() else []:
            for name in NAMES:
                yield short_real(real, name, 1e-2, extent.unseen_batches // 10, number)
    for number in range(extent.calibrations * 2 // 5):
        for name in NAMES:
            one = unseen(WORLDS[number % len(WORLDS)], 1e-2, 50, extent.unseen_batches // 10, number, name)
            yield replace(one, part="candidates")


def run_peers(extent: Extent) -> Iterator[Rate]:
    """river's detectors, all at their defaults, on the streams of the mechanism; they promise nothing."""
    yield from peers_at_defaults(DATA if DATA.is_dir() else None, extent.batches // 25)


RUNS = {
    "mechanism": run_mechanism,
    "unseen": run_unseen,
    "warm-up": run_warm_up,
    "held-out": run_held_out,
    "candidates": run_candidates,
    "peers": run_peers,
}


def summaries(found: Sequence[Rate]) -> list[str]:
    """Of cases that were run many times: how the ratios are spread."""
    groups: dict[str, list[float]] = {}
    for rate in found:
        if rate.part in ("unseen", "warm-up", "candidates"):
            groups.setdefault(_group(rate), []).append(rate.ratio)
    return [
        f"  {name}: {len(ratios)} calibrations, ratio median {np.median(ratios):.2f}, "
        f"90 % {np.quantile(ratios, 0.9):.2f}, at most 1.5 in {np.mean(np.array(ratios) <= 1.5):.0%}"
        for name, ratios in groups.items()
    ]


def _group(rate: Rate) -> str:
    words = [word for word in rate.case.split(", ") if word not in {world.name for world in WORLDS}]
    return f"{', '.join(words or [rate.part])} at {rate.promised:.0e}"


def save(found: Sequence[Rate], folder: Path) -> Path:
    """Write the measurements as JSON, with the date and the machine; other parts stay as they were saved before."""
    path = folder / "false_alarms.json"
    run = {rate.part for rate in found}
    before = json.loads(path.read_text(encoding="utf-8"))["rates"] if path.exists() else []
    rows = [row for row in before if row["part"] not in run]
    rows += [asdict(rate) | {"ratio": round(rate.ratio, 3) if rate.promised else None} for rate in found]
    content = {
        "title": "Promised and measured false-alarm rates of loss-level",
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine(),
        "rates": rows,
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path
