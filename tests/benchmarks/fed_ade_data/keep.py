"""Results on disk: a line a run while it goes on, and what is kept under docs/benchmarks."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from tests.benchmarks.fed_ade_data.arms import ORDER, PUBLISHED, SCALED, Result, by_setting
from tests.benchmarks.fed_ade_data.chart import chart
from tests.benchmarks.fed_ade_data.verdict import gains
from tests.benchmarks.report import machine


def read_lines(path: Path) -> list[Result]:
    """The runs in a file; a last line that was cut off is taken away."""
    if not path.exists():
        return []
    whole, _, cut = path.read_text(encoding="utf-8").rpartition("\n")
    if cut:
        path.write_text(f"{whole}\n" if whole else "", encoding="utf-8")
    return [Result(**json.loads(line)) for line in whole.splitlines()]


def add_lines(path: Path, results: Sequence[Result]) -> None:
    """A setting's arms more, in one write."""
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(json.dumps(asdict(result)) + "\n" for result in results))


def save(results: Sequence[Result], folder: Path) -> Path:
    """Accuracies and rates by setting, seed and arm, the gains, and a chart a kind of shift."""
    rows = ",\n".join("  " + json.dumps(row) for row in _rows(results))
    found = ",\n".join("  " + json.dumps(asdict(gain)) for gain in gains(results, (PUBLISHED, SCALED)))
    head = json.dumps({"date": time.strftime("%Y-%m-%d", time.gmtime()), "machine": machine()})[:-1]
    path = folder / "fed_ade.json"
    path.write_text(f'{head},\n "runs": [\n{rows}\n ],\n "gains": [\n{found}\n ]}}\n', encoding="utf-8")
    for kind in dict.fromkeys(result.kind for result in results):
        drawn = chart(kind, [result for result in results if result.kind == kind])
        (folder / f"fed_ade_{kind}.svg").write_text(drawn, encoding="utf-8")
    return path


def _rows(results: Sequence[Result]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for (task, kind, schedule), seeds in by_setting(results).items():
        for arm in ORDER:
            runs = [arms[arm] for arms in seeds.values()]
            rates = [run.rate for run in runs if run.rate is not None]
            rows.append(
                {
                    "task": task,
                    "shift": kind,
                    "schedule": schedule,
                    "arm": arm,
                    "seeds": list(seeds),
                    "served": [round(run.served, 5) for run in runs],
                    "adapted": [round(run.adapted, 5) for run in runs],
                    "mean_rate": round(float(np.mean(rates)), 6) if rates else None,
                }
            )
    return rows
