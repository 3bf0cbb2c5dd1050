"""What is kept under docs/benchmarks."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.recurring_data.chart import chart
from tests.benchmarks.recurring_data.run import Result
from tests.benchmarks.recurring_data.verdict import bars
from tests.benchmarks.report import stamp
from tests.benchmarks.run_lines import tables


def save(results: Sequence[Result], folder: Path) -> Path:
    """Means over seeds by data set, pattern and arm, the bars, and a chart a data set."""
    groups: dict[tuple[str, str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.task, result.pattern, result.arm), []).append(result)
    rows = [_means(runs) for runs in groups.values()]
    held = [{**asdict(bar), "held": bar.held} for bar in bars(results)]
    path = folder / "recurring.json"
    path.write_text(tables(stamp(), {"runs": rows, "bars": held}), encoding="utf-8")
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
