"""Results on disk: a line a run while it goes on, and what is kept under docs/benchmarks."""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.recurring_data.chart import chart
from tests.benchmarks.recurring_data.run import Result
from tests.benchmarks.recurring_data.verdict import bars
from tests.benchmarks.report import machine


def read_lines(path: Path) -> list[Result]:
    """The runs in a file; a last line that was cut off is taken away."""
    if not path.exists():
        return []
    whole, _, cut = path.read_text(encoding="utf-8").rpartition("\n")
    if cut:
        path.write_text(f"{whole}\n" if whole else "", encoding="utf-8")
    return [Result(**json.loads(line)) for line in whole.splitlines()]


def add_line(path: Path, result: Result) -> None:
    """One run more."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(result)) + "\n")


def save(results: Sequence[Result], folder: Path) -> Path:
    """Means over seeds by data set, pattern and arm, the bars, and a chart a data set."""
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.task, result.pattern, result.arm), []).append(result)
    rows = ",\n".join("  " + json.dumps(_means(runs)) for runs in groups.values())
    held = ",\n".join("  " + json.dumps({**asdict(bar), "held": bar.held}) for bar in bars(results))
    head = json.dumps({"date": time.strftime("%Y-%m-%d", time.gmtime()), "machine": machine()})[:-1]
    path = folder / "recurring.json"
    path.write_text(f'{head},\n "runs": [\n{rows}\n ],\n "bars": [\n{held}\n ]}}\n', encoding="utf-8")
    for task in dict.fromkeys(result.task for result in results):
        drawn = chart(task, [result for result in results if result.task == task])
        (folder / f"recurring_{task}.svg").write_text(drawn, encoding="utf-8")
    return path


def _means(runs: Sequence[Result]) -> dict[str, Any]:
    names = ("next_step", "same_step", "kept", "in_use", "agreement", "flags", "downloads", "uploads", "evaluations")
    means = {name: np.round(np.mean([getattr(run, name) for run in runs], axis=0), 3).tolist() for name in names}
    first = runs[0]
    fixed = {"task": first.task, "pattern": first.pattern, "arm": first.arm, "seeds": [run.seed for run in runs]}
    return {**fixed, "concepts": first.concepts, "model_bytes": first.model_bytes, **means}
