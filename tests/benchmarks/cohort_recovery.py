"""``python -m tests.benchmarks cohort_recovery [--quick]``: which cohorter finds the true families.

Mean adjusted Rand index and share of seeds with the exact partition, per case and way.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from tests.benchmarks.cohorts_data.cases import (
    Case,
    digit_cases,
    gas_cases,
    motion_cases,
    recipe_cases,
    synthetic_cases,
)
from tests.benchmarks.cohorts_data.drifted import adjusted_rand
from tests.benchmarks.cohorts_data.rivals import RIVALS
from tests.benchmarks.report import RESULTS

DATA = Path(os.environ.get("EDGE_DATA", Path(__file__).resolve().parents[3] / "shared" / "data"))
QUICK_SEEDS, SEEDS = 3, 20
# The reference needs seconds to minutes a draw beyond this; it is measured on fewer parameters only.
REFERENCE_MOST_PARAMETERS = 30_000


@dataclass(frozen=True, slots=True)
class Recovery:
    """One case and way.

    Attributes:
        mean: mean adjusted Rand index over the seeds.
        exact: share of the seeds in which the partition is the true one.
        below_reference: seeds in which it lies below the reference.
    """

    section: str
    claim: str
    case: str
    way: str
    seeds: int
    mean: float
    exact: float
    below_reference: int


def main(arguments: Sequence[str]) -> None:
    """Run cases, print a line a case, keep the results where asked."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks cohort_recovery")
    parser.add_argument("--quick", action="store_true", help="few cases, 3 seeds: seconds")
    parser.add_argument("--seeds", type=int, help=f"draws a case (default {SEEDS}, quick {QUICK_SEEDS})")
    parser.add_argument("--only", metavar="WORDS", default="", help="cases whose section and name contain these words")
    parser.add_argument("--large", action="store_true", help="545,000 parameters too: half an hour and more")
    parser.add_argument("--save", action="store_true", help="keep the results under docs/benchmarks")
    options = parser.parse_args(arguments)
    seeds = options.seeds or (QUICK_SEEDS if options.quick else SEEDS)
    with tempfile.TemporaryDirectory() as work:
        cases = select(all_cases(Path(work), options.quick, options.large), options.quick, options.only)
        run(cases, seeds, RESULTS / "cohort_recovery.json" if options.save else None)


def all_cases(work: Path, quick: bool, large: bool = False) -> Iterable[Case]:
    """Synthetic and real cases; real ones are named as not run where their data are absent."""
    yield from synthetic_cases(large=large)
    if (DATA / "gas_drift").is_dir():
        yield from gas_cases(DATA, work)
        yield from digit_cases(DATA, work)
    else:
        print("gas, digits: not run: data absent", file=sys.stderr)
    if not quick:
        if (DATA / "gas_drift").is_dir():
            yield from recipe_cases(DATA, work)
        yield from motion_cases(work)


def select(cases: Iterable[Case], quick: bool, words: str) -> Iterable[Case]:
    """The cases asked for."""
    return (case for case in cases if words in f"{case.section} {case.name}" and not (quick and case.slow))


def run(cases: Iterable[Case], seeds: int, kept: Path | None = None) -> list[Recovery]:
    """Every way on every draw of every case; each case's results are kept as they come."""
    results: list[Recovery] = []
    for case in cases:
        scores = _score(case, seeds)
        mine = [_summary(case, way, values, scores.get("reference")) for way, values in scores.items()]
        results += mine
        if kept is not None:
            save(mine, kept)
        shown = "  ".join(f"{way} {np.mean(values):.3f}" for way, values in scores.items())
        print(f"{case.section:9s} {case.claim:6s} {case.name:60s} {shown}", flush=True)
    return results


def save(results: Sequence[Recovery], path: Path) -> Path:
    """Results as JSON, with the date; cases of an earlier run that were not run now are kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    earlier = json.loads(path.read_text(encoding="utf-8"))["cases"] if path.exists() else []
    fresh = {(result.section, result.case) for result in results}
    kept = [entry for entry in earlier if (entry["section"], entry["case"]) not in fresh]
    content = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "cases": kept + [asdict(r) for r in results]}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


def _score(case: Case, seeds: int) -> dict[str, list[float]]:
    scores: dict[str, list[float]] = {}
    for seed in range(seeds):
        drifted = case.draw(seed)
        large = drifted.changes.shape[1] > REFERENCE_MOST_PARAMETERS
        for way, method in RIVALS.items():
            if way == "reference" and (large or len(drifted.changes) > 25):
                continue
            scores.setdefault(way, []).append(adjusted_rand(method(drifted), drifted.families))
    return scores


def _summary(case: Case, way: str, values: list[float], reference: list[float] | None) -> Recovery:
    below = 0 if reference is None else sum(v < r - 1e-9 for v, r in zip(values, reference, strict=True))
    exact = float(np.mean([value == 1.0 for value in values]))
    return Recovery(case.section, case.claim, case.name, way, len(values), float(np.mean(values)), exact, below)
