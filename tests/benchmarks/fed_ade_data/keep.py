"""What is kept under docs/benchmarks."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from tests.benchmarks.fed_ade_data.arms import ORDER, PUBLISHED, SCALED, Result, by_setting
from tests.benchmarks.fed_ade_data.chart import chart
from tests.benchmarks.fed_ade_data.verdict import gains
from tests.benchmarks.report import stamp
from tests.benchmarks.run_lines import tables


def save(results: Sequence[Result], folder: Path) -> Path:
    """Accuracies and rates by setting, seed and arm, the gains, and a chart a kind of shift."""
    found = [asdict(gain) for gain in gains(results, (PUBLISHED, SCALED))]
    path = folder / "fed_ade.json"
    path.write_text(tables(stamp(), {"runs": _rows(results), "gains": found}), encoding="utf-8")
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
