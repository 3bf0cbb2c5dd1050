"""How much of the agent's loop the monitors take, with all that goes with them: policy, states, labels, screening.

The loop of ``agent_loop`` at batch 32, on bundles whose references are long enough for every default monitor: a net of
16 features, and the CNN with its pictures of 3,072 values. Each in a process of its own:
``python -m tests.benchmarks.drift_data.share NET ROWS``.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edge_agent.cli import BLAS_THREADS
from edge_agent.runtime.screening import Screening
from edge_agent.runtime.watch import DriftWatch
from tests.benchmarks.drift_data.streams import BATCH
from tests.benchmarks.loop_data import looped
from tests.benchmarks.loop_data.made import made
from tests.benchmarks.report import stamp
from tests.benchmarks.run_lines import tables
from tests.benchmarks.step_data.cases import Case, case

REFERENCE_ROWS = 8000
ROWS = {"features": 30_000, "cnn": 12_288}
FEATURES = Case("mlp", "MLP 16-128-16", (16,), 6, 1.0, 1)
RUN_S = 900


def run() -> list[dict[str, Any]]:
    """A row a net: CPU microseconds a sample of the loop and of the monitors, and batches that are judged together.

    Raises:
        RuntimeError: a loop did not end well.
    """
    rows = []
    for net, count in ROWS.items():
        words = [sys.executable, "-m", "tests.benchmarks.drift_data.share", net, str(count)]
        one_thread = {**os.environ, **dict.fromkeys(BLAS_THREADS, "1")}  # as the agent's own start has it
        done = subprocess.run(words, capture_output=True, text=True, timeout=RUN_S, check=False, env=one_thread)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr[-2000:]}")
        rows.append(json.loads(done.stdout.splitlines()[-1]))
    bare = next(row["loop_us"] for row in rows if row["net"] == "cnn")
    return [{**row, "of_cnn_loop": round(row["monitors_us"] / bare, 3)} for row in rows]


def table(rows: list[dict[str, Any]]) -> str:
    """For people."""
    lines = [
        "| net | loop, us of CPU a sample | monitors | of the CNN's loop | batches at once |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        figures = f"{row['loop_us']:.1f} | {row['monitors_us']:.1f} | {row['of_cnn_loop']:.1%} | {row['batches']:.0f}"
        lines.append(f"| {row['net']} | {figures} |")
    return "\n".join(lines)


def save(rows: list[dict[str, Any]], folder: Path) -> Path:
    """Keep the results."""
    path = folder / "drift_share.json"
    path.write_text(tables(stamp(), {"share": rows}), encoding="utf-8")
    return path


def measured(net: str, count: int) -> dict[str, Any]:
    """One net's loop in this process."""
    spent = {"monitors": 0.0}
    calls = {"consume": 0}
    for owner, name in ((DriftWatch, "consume"), (Screening, "look"), (Screening, "save"), (Screening, "tell")):
        setattr(owner, name, _timed(getattr(owner, name), spent))
    setattr(DriftWatch, "_judge", _counted(DriftWatch._judge, calls))  # noqa: B010
    with tempfile.TemporaryDirectory() as folder:
        entry = FEATURES if net == "features" else case(net)
        place = made(entry, Path(folder) / net, rows=count, batch=BATCH, calibration_rows=REFERENCE_ROWS)
        spent["monitors"] = calls["consume"] = 0
        found = looped.agent(place.settings, BATCH)
    return {
        "net": net,
        "loop_us": round(found["cpu_s"] / found["rows"] * 1e6, 2),
        "monitors_us": round(spent["monitors"] / found["rows"] * 1e6, 2),
        "batches": round(found["rows"] / BATCH / calls["consume"], 1),
    }


def _timed(method: Callable[..., Any], spent: dict[str, float]) -> Callable[..., Any]:
    def timed(*given: Any, **named: Any) -> Any:
        began_s = time.thread_time()
        try:
            return method(*given, **named)
        finally:
            spent["monitors"] += time.thread_time() - began_s

    return timed


def _counted(method: Callable[..., Any], calls: dict[str, int]) -> Callable[..., Any]:
    def counted(*given: Any, **named: Any) -> Any:
        calls["consume"] += 1
        return method(*given, **named)

    return counted


if __name__ == "__main__":
    print(json.dumps(measured(sys.argv[1], int(sys.argv[2]))))
