"""``python -m tests.benchmarks label_free_level [--quick]``: is the label-free monitor's promise kept?

Unseen: many whole calibrations on short references of made rows, each at the lowest rate that its reference supports
(1e-3 at least), judged on new rows of its world. Held out: halves of real stretches.
"""

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from tests.benchmarks.false_alarms import line
from tests.benchmarks.false_alarms_data.level import Rate
from tests.benchmarks.false_alarms_data.unlabelled import REAL, held_out, unseen
from tests.benchmarks.report import keep
from tests.shared_data import DATA

NAME, TITLE = "label_free_level", "Promised and measured false-alarm rates of label-free"
PARTS = ("unseen", "held-out")
GOAL = 1.5


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured.

    Attributes:
        calibrations: rows of a reference to how many of them.
        alarms: that each is promised while it is judged.
        lowest: rate a batch.
    """

    calibrations: tuple[tuple[int, int], ...] = ((500, 28), (1000, 21), (4000, 14), (20_000, 2))
    alarms: int = 40
    lowest: float = 1e-3


QUICK = Extent(((500, 4),), 10, 1e-2)


def main(arguments: Sequence[str]) -> None:
    """Run the parts, print the rates."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks label_free_level")
    parser.add_argument("--quick", action="store_true", help="few calibrations: seconds")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=PARTS, help="default: all")
    parser.add_argument("--save", action="store_true", help="keep the results under docs/benchmarks")
    options = parser.parse_args(arguments)
    os.nice(19)
    extent, began_s = QUICK if options.quick else Extent(), time.process_time()
    found: list[Rate] = []
    for part in options.parts:
        for rate in RUNS[part](extent):
            print(line(rate), flush=True)
            found.append(rate)
    print(f"  {time.process_time() - began_s:.0f} s CPU")
    for words in summaries(found):
        print(words)
    if options.save:
        rows = [asdict(rate) | {"ratio": round(rate.ratio, 3)} for rate in found]
        print(f"saved: {keep(NAME, TITLE, {'rates': rows}).name}")


def run_unseen(extent: Extent) -> Iterator[Rate]:
    """Made rows, the worlds and the numbers of features in turn."""
    for rows, calibrations in extent.calibrations:
        for number in range(calibrations):
            rate = unseen(number, rows, extent.lowest, extent.alarms)
            if rate is not None:
                yield rate


def run_held_out(extent: Extent) -> Iterator[Rate]:
    """Real stretches; what supports no rate is left out."""
    if not (DATA / "gas_drift").is_dir():
        raise SystemExit("label_free_level: not run: data absent")
    for name in REAL:
        yield from held_out(name, DATA, extent.lowest, extent.alarms)


RUNS = {"unseen": run_unseen, "held-out": run_held_out}


def summaries(found: Sequence[Rate]) -> list[str]:
    """Of made rows, by the size of the reference: how the ratios are spread."""
    groups: dict[str, list[float]] = {}
    for rate in found:
        if rate.part == "unseen":
            groups.setdefault(rate.case.rsplit(", ", 1)[1], []).append(rate.ratio)
    return [
        f"  {rows}: {len(ratios)} calibrations, measured over promised: median {np.median(ratios):.2f}, 90 % "
        f"{np.quantile(ratios, 0.9):.2f}, at most {GOAL} in {np.mean(np.array(ratios) <= GOAL):.0%}"
        for rows, ratios in groups.items()
    ]
