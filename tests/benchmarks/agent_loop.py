"""What the agent adds to bare inference: rate of its loop, memory, start, and latency while a worker trains.

``python -m tests.benchmarks agent_loop [--rounds N] [--save] [--quick]``
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edge_agent.cli import BLAS_THREADS
from tests.benchmarks.loop_data.looped import STREAM
from tests.benchmarks.loop_data.made import Made, made
from tests.benchmarks.loop_data.paced import ALONE
from tests.benchmarks.loop_data.started import agent, bare
from tests.benchmarks.report import RESULTS, machine
from tests.benchmarks.step_data.cases import case
from tests.benchmarks.step_data.made import CALIBRATION_ROWS

TITLE = "The agent's loop beside bare onnxruntime"
RUN_S = 600
MB = 1e6


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop as it is measured: a net, samples at a time, samples of the recording, the rate over the bare one aimed
    at, how often the recording is played, and rows of the bundle's reference."""

    net: str
    batch: int
    rows: int
    goal: float
    passes: int = 1
    reference: int = CALIBRATION_ROWS

    @property
    def words(self) -> str:
        """For the table."""
        return f"loop, {self.net}, batch {self.batch}, reference of {self.reference}"


ALL_MONITORS = 2_000
"""Rows of a reference on which each default monitor is calibrated; on 200 only `loss-rise`, `arrivals` and `faults`."""
LOOPS = (
    Loop("mlp", 1, 20_000, 0.25, passes=25),
    Loop("cnn", 32, 8_192, 0.90, passes=16),
    Loop("mlp", 1, 20_000, 0.25, passes=25, reference=ALL_MONITORS),
    Loop("cnn", 32, 8_192, 0.90, passes=16, reference=ALL_MONITORS),
)
"""So long that the sample store is full and its reservoir old, as on a gateway that has run for some minutes."""
GRAPH = "momentum"
SCHEDULINGS = ("batch", "idle")
"""The worker's scheduling classes; the first is what a gateway is set to."""

QUICK = (Loop("mlp", 1, 1_000, 0.25),)


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured ratio and what is aimed at.

    Args:
        what: was measured, with its unit.
        bare, ours: medians.
        ratio: of the medians of what is compared, as `what` says.
        goal: of the ratio.
        at_least: whether more is better.
    """

    what: str
    bare: float
    ours: float
    ratio: float
    goal: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        """Whether the goal is reached."""
        return self.ratio >= self.goal if self.at_least else self.ratio <= self.goal

    def line(self) -> str:
        """A line of the table in `docs/benchmarks.md`."""
        ratio = f"{self.ratio:.2f}" if self.met else f"**{self.ratio:.2f}**"
        sign = ">=" if self.at_least else "<="
        return f"| {self.what} | {self.bare:.4g} | {self.ours:.4g} | {ratio} | {sign} {self.goal:g} |"


def rates(loop: Loop, place: Made, *, rounds: int) -> list[Figure]:
    """Samples a second of CPU and of the clock, the agent's over the bare loop's."""
    taken: dict[str, list[dict[str, Any]]] = {"bare": [], "agent": []}
    for _ in range(rounds):
        for way, runs in taken.items():
            words = [way, str(place.case), str(place.settings), str(loop.batch), str(loop.passes)]
            runs.append(_json_of(["tests.benchmarks.loop_data.looped", *words]))
    figures = []
    for unit, key in (("CPU", "cpu_s"), ("clock", "wall_s")):
        pairs = list(zip(taken["bare"], taken["agent"], strict=True))
        ratio = statistics.median(float(one[key]) / float(other[key]) for one, other in pairs)
        bare_us, ours_us = (_median([run[key] / run["rows"] * 1e6 for run in taken[way]]) for way in taken)
        what = f"{loop.words}: us of {unit} a sample; rate"
        figures.append(Figure(what, bare_us, ours_us, ratio, loop.goal, at_least=True))
    return figures


def starts(place: Made, folder: Path, *, rounds: int, serve_s: float) -> list[Figure]:
    """Peak memory while serving, and the time to the first prediction."""
    ours, bares = [], []
    agent(place.settings, folder, serve_s=0.1)  # compiles the modules, and makes the databases
    for _ in range(rounds):
        bares.append(bare(place.case / "net.onnx", place.settings.parent / STREAM, folder, serve_s=serve_s))
        ours.append(agent(place.settings, folder, serve_s=serve_s))
    bare_mb, ours_mb = (_median([run.peak_bytes / MB for run in runs]) for runs in (bares, ours))
    figures = [Figure("peak resident MB while serving; MB more", bare_mb, ours_mb, ours_mb - bare_mb, 60.0)]
    pairs = list(zip(bares, ours, strict=True))
    return [
        *figures,
        _start("clock", [(one.first_s, other.first_s) for one, other in pairs]),
        _start("CPU", [(one.first_cpu_s, other.first_cpu_s) for one, other in pairs]),
    ]


def _start(unit: str, pairs: Sequence[tuple[float, float]]) -> Figure:
    bare_s, ours_s = (_median(values) for values in zip(*pairs, strict=True))
    ratio = _median([other / one for one, other in pairs])
    return Figure(f"s of {unit} from start to first prediction", bare_s, ours_s, ratio, 3.0)


def latencies(settings: Path, *, phases: int, seconds: float) -> list[Figure]:
    """At 100 Hz alone and while the agent's worker trains, in turn: of the medians over the phases, for each class."""
    words = [str(settings), GRAPH, str(phases), str(seconds), *SCHEDULINGS]
    taken = _json_of(["tests.benchmarks.loop_data.paced", *words])
    return [
        _latency(f"p{percent} ms at 100 Hz, alone and while a worker trains, {name}", taken, name, percent, goal)
        for name in SCHEDULINGS
        for percent, goal in ((99, 1.5), (50, 1.5))
    ]


def _latency(what: str, taken: dict[str, list[list[float]]], name: str, percent: float, goal: float) -> Figure:
    alone, busy = (
        _median([float(np.percentile(phase, percent)) * 1e3 for phase in taken[one]]) for one in (ALONE, name)
    )
    return Figure(what, alone, busy, busy / alone, goal)


def run(folder: Path, *, rounds: int, quick: bool = False) -> list[Figure]:
    """Everything, printed as it goes."""
    figures: list[Figure] = []
    for loop in QUICK if quick else LOOPS:
        home = folder / f"{loop.net}-{loop.reference}"
        place = made(case(loop.net), home, rows=loop.rows, batch=loop.batch, calibration_rows=loop.reference)
        figures += rates(loop, place, rounds=rounds)
        if loop.reference == ALL_MONITORS:
            continue
        if loop.batch == 1:
            figures += starts(place, folder, rounds=1 if quick else max(rounds, 5), serve_s=1.0 if quick else 4.0)
        if not quick and loop.net == "cnn":
            figures += latencies(place.settings, phases=max(2 * rounds, 6), seconds=4.0)
    for figure in figures:
        print(figure.line(), flush=True)
    return figures


def main(arguments: Sequence[str]) -> None:
    """Run it as told."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks agent_loop")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved (default 7)")
    parser.add_argument("--save", action="store_true", help="keep the results under docs/benchmarks")
    parser.add_argument("--quick", action="store_true", help="one small loop and start: seconds")
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        figures = run(Path(folder), rounds=1 if chosen.quick else chosen.rounds, quick=chosen.quick)
    if chosen.save:
        save(figures)


def save(figures: Sequence[Figure], folder: Path = RESULTS) -> None:
    """Write the results."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        "title": TITLE,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": machine(),
        "figures": [{**asdict(figure), "met": figure.met} for figure in figures],
    }
    (folder / "agent_loop.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _json_of(words: Sequence[str]) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", *words],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
        env={**os.environ, **dict.fromkeys(BLAS_THREADS, "1")},  # as the agent's own start has it
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)
