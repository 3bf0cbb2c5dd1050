"""``python -m tests.benchmarks fed_ade [--quick]``: streams that shift, adapted to without labels.

Linear, sine, square and Bernoulli schedules of label and covariate shift on digits, CIFAR-10 and gas sensors; several
clients that average what they share. Fed-ADE's rates, as published and scaled, beside each fixed rate, no adaptation
and the constant rate of the same mean. Each setting is written to disk as it ends; a run that is stopped goes on
where it was.
"""

import argparse
import logging
import os
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import structlog

from tests.benchmarks.fed_ade_data.arms import PUBLISHED, SCALED, Result, run_arms
from tests.benchmarks.fed_ade_data.fleet import draw
from tests.benchmarks.fed_ade_data.keep import save
from tests.benchmarks.fed_ade_data.schedules import SCHEDULES
from tests.benchmarks.fed_ade_data.served import serve_all
from tests.benchmarks.fed_ade_data.served import table as served_table
from tests.benchmarks.fed_ade_data.tasks import TASKS, Kind
from tests.benchmarks.fed_ade_data.verdict import gain_table, gains, table
from tests.benchmarks.report import RESULTS
from tests.benchmarks.run_lines import add_lines, read_lines
from tests.shared_data import DATA

KINDS: tuple[Kind, ...] = ("label", "covariate")
SEEDS = 10
Choice = tuple[str, Kind, str]
QUICK: list[Choice] = [("digits", "covariate", "square")]


def main(arguments: Sequence[str]) -> None:
    """Run what is not on disk yet, print the tables."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks fed_ade")
    parser.add_argument("--quick", action="store_true", help="digits under one covariate shift, one seed: seconds")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"how many (default {SEEDS})")
    parser.add_argument(
        "--first-seed", type=int, default=0, help="the first of them; those from 1000 are for development"
    )
    parser.add_argument("--only", metavar="WORDS", default="", help="tasks, kinds and schedules, such as 'gas label'")
    parser.add_argument("--lines", type=Path, help="file that keeps each setting; settings in it are not run again")
    parser.add_argument(
        "--work", type=Path, help="folder that keeps nets and decoded images; a temporary one if not given"
    )
    parser.add_argument("--served", action="store_true", help="as the agent serves it, with labels that judge or none")
    parser.add_argument("--save", action="store_true", help="keep the results under docs/benchmarks")
    options = parser.parse_args(arguments)
    os.nice(19)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    seeds = range(options.first_seed, options.first_seed + (1 if options.quick else options.seeds))
    if options.served:
        _served(seeds)
        return
    kept = read_lines(options.lines, Result) if options.lines else []
    with tempfile.TemporaryDirectory() as temporary:
        choices = QUICK if options.quick else select(options.only)
        results = run(choices, seeds, kept, options.lines, options.work or Path(temporary))
    print(table(results))
    print(gain_table(gains(results, (PUBLISHED, SCALED))))
    if options.save:
        print(f"saved: {save(results, RESULTS).name}")


def _served(seeds: Iterable[int]) -> None:
    if not (DATA / "gas_drift").is_dir():
        raise SystemExit("fed_ade: not run: data absent")
    results = []
    with tempfile.TemporaryDirectory() as work:
        for one in serve_all(seeds, Path(work), DATA):
            print(f"  {one.task:9s}{one.seed:5d}  {one.arm:13s}{one.right:6.1f}  worse {one.worse}", flush=True)
            results.append(one)
    print(served_table(results))


def select(words: str) -> list[Choice]:
    """The settings whose task, kind and schedule are named; of what no word names, all.

    Raises:
        SystemExit: a word names nothing.
    """
    given = set(words.split())
    names: list[list[str]] = [list(TASKS), list(KINDS), list(SCHEDULES)]
    unknown = given.difference(*names)
    if unknown:
        raise SystemExit(f"fed_ade: nothing is called {min(unknown)!r}")
    wanted = [given.intersection(part) or set(part) for part in names]
    return [
        (task, kind, schedule)
        for task in TASKS
        for kind in KINDS
        for schedule in SCHEDULES
        if task in wanted[0] and kind in wanted[1] and schedule in wanted[2]
    ]


def run(
    choices: Sequence[Choice], seeds: Iterable[int], kept: Sequence[Result], lines: Path | None, work: Path
) -> list[Result]:
    """Every setting that is not kept, seed by seed.

    Raises:
        SystemExit: the data are absent.
    """
    if not (DATA / "gas_drift").is_dir():
        raise SystemExit("fed_ade: not run: data absent")
    done: dict[tuple[str, str, str, int], list[Result]] = {}
    for result in kept:
        done.setdefault((result.task, result.kind, result.schedule, result.seed), []).append(result)
    tasks = {}
    results: list[Result] = []
    for seed in seeds:
        for name, kind, schedule in choices:
            found = done.get((name, kind, schedule, seed))
            if found is None:
                began_s = time.process_time()
                if (name, kind) not in tasks:
                    tasks[name, kind] = TASKS[name](DATA, work, kind)
                found = run_arms(draw(tasks[name, kind], schedule, seed))
                _note(found, time.process_time() - began_s, lines)
            results += found
    return results


def _note(results: Sequence[Result], took_s: float, lines: Path | None) -> None:
    first = results[0]
    served = " ".join(f"{100 * result.served:.1f}" for result in results)
    print(f"  {first.task:9s}{first.kind:10s}{first.schedule:10s}{first.seed:5d}  {served}  {took_s:.1f} s", flush=True)
    if lines is not None:
        add_lines(lines, results)
