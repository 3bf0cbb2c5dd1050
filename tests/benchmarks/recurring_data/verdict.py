"""The table of means, and the bars with whether they hold."""

from collections.abc import Sequence

import numpy as np

from tests.benchmarks.recurring_data.run import Result


def table(results: Sequence[Result]) -> str:
    """Means over patterns and seeds, a line a data set and arm."""
    head = f"{'data set':9s} {'arm':20s} {'runs':>4s} {'next':>6s} {'same':>6s} {'kept':>5s} {'over':>5s}"
    lines = [f"{head} {'sent':>7s} {'scored':>7s}"]
    for task, arm in dict.fromkeys((r.task, r.arm) for r in results):
        mine = [r for r in results if (r.task, r.arm) == (task, arm)]
        lines.append(
            f"{task:9s} {arm:20s} {len(mine):4d} {_mean([r.mean_next for r in mine]):6.3f}"
            f" {_mean([r.mean_same for r in mine]):6.3f} {_mean([r.kept[-1] for r in mine]):5.1f}"
            f" {_mean([r.kept[-1] - r.concepts for r in mine]):5.1f} {_mean([r.traffic for r in mine]):7.0f}"
            f" {_mean([r.evaluations for r in mine]):7.0f}"
        )
    return "\n".join(lines)


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values))
