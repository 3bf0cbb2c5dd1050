"""``python -m tests.benchmarks recurring [--quick]``: drift that comes back, FedDrift's ten patterns.

Ten clients, ten time steps, four rounds a time step. Ours beside the reference package, FedAvg, and as test
oracles IFCA, FedDrift and the true clustering: accuracy, cohorts, models sent and scored. Each run is written
to disk as it ends; a run that is stopped goes on where it was.
"""

import argparse
import logging
import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import structlog

from tests.benchmarks.recurring_data.arms import ARMS
from tests.benchmarks.recurring_data.keep import save
from tests.benchmarks.recurring_data.patterns import fitting
from tests.benchmarks.recurring_data.run import Result, Setting
from tests.benchmarks.recurring_data.tasks import Task, make_tasks
from tests.benchmarks.recurring_data.verdict import bar_table, bars, table
from tests.benchmarks.report import RESULTS
from tests.benchmarks.run_lines import add_lines, read_lines

DATA = Path(os.environ.get("EDGE_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
SEEDS = 3
QUICK = ("SINE-2", "A")


def main(arguments: Sequence[str]) -> None:
    """Run what is not on disk yet, print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks recurring")
    parser.add_argument("--quick", action="store_true", help="SINE-2 under pattern A, one seed: seconds")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"how many (default {SEEDS})")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them")
    parser.add_argument(
        "--only", metavar="WORDS", default="", help="data sets, patterns and arms, such as 'SEA-4 B C ours'"
    )
    parser.add_argument("--lines", type=Path, help="file that keeps each run; runs in it are not run again")
    parser.add_argument("--save", action="store_true", help="keep the results under docs/benchmarks")
    options = parser.parse_args(arguments)
    os.nice(19)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    seeds = range(options.first_seed, options.first_seed + (1 if options.quick else options.seeds))
    kept = read_lines(options.lines, Result) if options.lines else []
    results = list(run(select(options.quick, options.only), seeds, kept, options.lines))
    print(table(results))
    print(bar_table(bars(results)))
    if options.save:
        print(f"saved: {save(results, RESULTS).name}")


Choice = tuple[Task, str, str]


def select(quick: bool, words: str) -> list[Choice]:
    """Task, pattern and arm of the runs asked for.

    Raises:
        SystemExit: the data are absent.
    """
    if not (DATA / "feddrift").is_dir():
        raise SystemExit("recurring: not run: data absent")
    choices = [
        (task, pattern.name, arm)
        for task in make_tasks(DATA).values()
        for pattern in fitting(DATA, task.concepts)
        for arm in ARMS
    ]
    chosen = named(choices, words.split())
    return [c for c in chosen if (c[0].name, c[1]) == QUICK] if quick else chosen


def named(choices: Sequence[Choice], words: Sequence[str]) -> list[Choice]:
    """The choices whose data set, pattern and arm are named; of a kind that no word names, all.

    Raises:
        SystemExit: a word names nothing.
    """
    kinds = [{task.name for task, _, _ in choices}, {pattern for _, pattern, _ in choices}, set(ARMS)]
    unknown = set(words).difference(*kinds)
    if unknown:
        raise SystemExit(f"recurring: nothing is called {sorted(unknown)[0]!r}")
    wanted = [kind & set(words) or kind for kind in kinds]
    return [
        (task, pattern, arm)
        for task, pattern, arm in choices
        if task.name in wanted[0] and pattern in wanted[1] and arm in wanted[2]
    ]


def run(choices: Iterable[Choice], seeds: Iterable[int], kept: Sequence[Result], lines: Path | None) -> list[Result]:
    """Every run that is not kept; settings are shared by arms."""
    done = {(r.task, r.pattern, r.arm, r.seed): r for r in kept}
    results: list[Result] = []
    by_setting: dict[tuple[str, str, int], tuple[Task, list[str]]] = {}
    for task, pattern, arm in choices:
        for seed in seeds:
            by_setting.setdefault((task.name, pattern, seed), (task, []))[1].append(arm)
    for (name, pattern, seed), (task, arms) in sorted(by_setting.items(), key=lambda item: item[0][2]):
        results += [done[name, pattern, arm, seed] for arm in arms if (name, pattern, arm, seed) in done]
        missing = [arm for arm in arms if (name, pattern, arm, seed) not in done]
        if not missing:
            continue
        setting = Setting(task, next(p for p in fitting(DATA, task.concepts) if p.name == pattern), seed)
        for arm in missing:
            began_s = time.process_time()
            results.append(setting.run(arm))
            _note(results[-1], time.process_time() - began_s, lines)
    return results


def _note(result: Result, took_s: float, lines: Path | None) -> None:
    print(
        f"  {result.task:9s}{result.pattern} {result.seed:4d} {result.arm:20s}"
        f" next {result.mean_next:.3f} same {result.mean_same:.3f} kept {result.kept[-1]:2d}"
        f" sent {result.traffic:5.0f} scored {result.evaluations:5.0f}  {took_s:.1f} s",
        flush=True,
    )
    if lines is not None:
        add_lines(lines, [result])
