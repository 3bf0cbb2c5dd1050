"""``python -m tests.benchmarks cifar10_drift``: the published experiment, ours beside the reference and FedAvg.

Ten clients with images of CIFAR-10, eight of which have their labels turned at rounds 3, 5, 7 and 9, one family up
and one down. Clients train with our training graph, flag by Algorithm 2 and are the same in every arm. What was
trained is kept on disk by all that it depends on, so that arms share it, and a run that was cut off goes on.
"""

import argparse
import json
import logging
import os
import platform
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import structlog

from tests.benchmarks.cifar_data.arms import ALL_ARMS, ARMS, run_arm
from tests.benchmarks.cifar_data.chart import accuracy_chart, cohort_chart
from tests.benchmarks.cifar_data.clients import CifarFleet
from tests.benchmarks.cifar_data.grid import RoundAccount
from tests.benchmarks.cifar_data.images import load_images
from tests.benchmarks.cifar_data.setting import HARDER, SETTINGS, Setting
from tests.benchmarks.cifar_data.summary import Runs, summarise
from tests.benchmarks.cifar_data.training_cache import TrainingCache
from tests.benchmarks.report import RESULTS
from tests.shared_data import DATA

SEEDS = 3
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "clma-edge" / "cifar10"
QUICK_ARMS = ("ours", "FedAvg")


def main(arguments: Sequence[str]) -> None:
    """Run, print a line a round, keep the results where asked."""
    options = _options(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    names = options.setting or (["quick"] if options.quick else HARDER if options.harder else ["published"])
    seeds = 1 if options.quick or options.harder else options.seeds
    arms = options.only or (QUICK_ARMS if options.quick else ARMS)
    for name in names:
        numbers = range(options.first_seed, options.first_seed + seeds)
        runs = {**(kept_runs(name) if options.kept else {}), **run(SETTINGS[name], numbers, arms, options.cache)}
        summary = summarise(runs)
        print(json.dumps(summary, indent=1))
        if options.save:
            save(name, runs, summary)


def run(setting: Setting, seeds: Sequence[int], arms: Sequence[str], cache: Path, data: Path = DATA) -> Runs:
    """Every arm with every seed."""
    runs: dict[tuple[str, int], list[RoundAccount]] = {}
    images, results = load_images(data, cache), cache / "results"
    results.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        fleet = CifarFleet(setting, seed, images, TrainingCache(cache / "trained"), cache / "nets")
        for arm in arms:
            runs[arm, seed] = run_arm(arm, fleet, results, lambda words: print(words, flush=True))
    return runs


def kept_runs(name: str, folder: Path = RESULTS) -> Runs:
    """What :func:`save` has kept of a setting in which everybody takes part in every round.

    Raises:
        SystemExit: there is nothing, or who took part is not kept.
    """
    path = folder / "cifar10_drift.json"
    content = json.loads(path.read_text(encoding="utf-8")).get(name) if path.exists() else None
    if content is None or SETTINGS[name].participation < 1:
        raise SystemExit(f"cifar10_drift: no runs of {name!r} are kept that can be counted")
    runs: dict[tuple[str, int], list[RoundAccount]] = {}
    for row in content["rounds"]:
        row |= {key: dict(enumerate(row[key])) for key in ("accuracy", "cohorts")}
        row["losses"] = dict.fromkeys(row["accuracy"], float("nan"))
        runs.setdefault((row.pop("arm"), row.pop("seed")), []).append(RoundAccount(**row))
    return runs


def save(name: str, runs: Runs, summary: Mapping[str, Any], folder: Path = RESULTS) -> None:
    """Write rounds and summary as JSON, beside those of other settings, and the pictures."""
    path = folder / "cifar10_drift.json"
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    kept[name] = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "machine": f"{platform.machine()}, Python {platform.python_version()}",
        "setting": asdict(SETTINGS[name]),
        "summary": summary,
        "rounds": [{"arm": arm, "seed": seed, **_short(a)} for (arm, seed), mine in runs.items() for a in mine],
    }
    path.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    stem = f"cifar10_drift_{'-'.join(re.findall('[0-9A-Za-z]+', name))}"
    (folder / f"{stem}_accuracy.svg").write_text(accuracy_chart(runs, f"CIFAR-10, {name}: accuracy"), encoding="utf-8")
    (folder / f"{stem}_cohorts.svg").write_text(cohort_chart(runs, f"CIFAR-10, {name}: cohorts"), encoding="utf-8")


def _short(account: RoundAccount) -> dict[str, Any]:
    """A round without its many numbers of losses and facts."""
    content = asdict(account)
    for name in ("facts", "losses"):
        del content[name]
    for name in ("training_cpu_s", "server_cpu_s", "server_peak_mib"):
        content[name] = round(content[name], 3)
    for name in ("accuracy", "cohorts"):
        content[name] = [round(content[name][client], 4) for client in sorted(content[name])]
    return content


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks cifar10_drift")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"how many (default {SEEDS})")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them (default 0)")
    parser.add_argument("--quick", action="store_true", help="1,500 images, 6 rounds, one seed, two arms")
    parser.add_argument("--harder", action="store_true", help="the harder settings, one seed each")
    parser.add_argument("--setting", choices=SETTINGS, action="append", help="only these settings")
    parser.add_argument("--only", choices=ALL_ARMS, action="append", help="only these arms")
    parser.add_argument("--cache", type=Path, default=CACHE, help=f"folder of what was trained (default {CACHE})")
    parser.add_argument("--kept", action="store_true", help="kept runs of the setting count too, if not run now")
    parser.add_argument("--save", action="store_true", help="keep the results under docs/benchmarks")
    return parser.parse_args(arguments)
