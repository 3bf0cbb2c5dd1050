"""Fine-tuned accuracy by the training graph beside the same fine-tuning in torch, on real drifts.

``python -m tests.benchmarks learning_quality [--tasks ...] [--seeds N] [--save] [--quick]``
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from edge_agent.wire.tensors import Weights
from tests.benchmarks.quality_data.tasks import TASKS, TITLES
from tests.benchmarks.quality_data.twin import accuracy, tuned_by_torch, tuned_here
from tests.benchmarks.report import RESULTS, keep

TITLE = "Fine-tuned accuracy beside torch: same data, order, steps, initial weights"
GOAL_POINTS = 0.5


@dataclass(frozen=True, slots=True)
class Result:
    """One seed of a task; accuracies on held-out samples, and how far the weights went apart.

    Attributes:
        torch_wide: torch's own accuracy in float64: what rounding alone does to the same fine-tuning.
        apart, torch_apart: length of the difference of ours, and of torch's float64 weights, from torch's float32 ones,
            over that of what torch changed.
    """

    task: str
    seed: int
    steps: int
    held_out: int
    before: float
    ours: float
    torch: float
    torch_wide: float
    apart: float
    torch_apart: float

    @property
    def points(self) -> float:
        """Ours minus torch's, in points."""
        return 100 * (self.ours - self.torch)


def run(tasks: Sequence[str], seeds: Sequence[int], work: Path) -> list[Result]:
    """Fine-tune twice for every task and seed."""
    return [_result(name, seed, work) for name in tasks for seed in seeds]


def _result(name: str, seed: int, work: Path) -> Result:
    task = TASKS[name](work, seed)
    ours, theirs, wide = tuned_here(task), tuned_by_torch(task), tuned_by_torch(task, wide=True)
    change = _distance(task.weights, theirs)
    return Result(
        name,
        seed,
        steps=len(list(task.batches())),
        held_out=len(task.test_labels),
        before=accuracy(task, task.weights),
        ours=accuracy(task, ours),
        torch=accuracy(task, theirs),
        torch_wide=accuracy(task, wide),
        apart=_distance(ours, theirs) / change,
        torch_apart=_distance(wide, theirs) / change,
    )


def _distance(one: Weights, other: Weights) -> float:
    return float(np.sqrt(sum(float(((one[name] - other[name]) ** 2).sum()) for name in other)))


def line(name: str, results: Sequence[Result]) -> str:
    """A line of the table in `docs/benchmarks.md`."""
    mine = [result for result in results if result.task == name]
    before, ours, theirs = (
        float(np.mean([getattr(result, side) for result in mine])) for side in ("before", "ours", "torch")
    )
    points = [result.points for result in mine]
    wide = [100 * (result.torch_wide - result.torch) for result in mine]
    shown = _mean(points) if abs(np.mean(points)) <= GOAL_POINTS else f"**{_mean(points)}**"
    most = max(points, key=abs)
    largest = f"{most:+.2f}" if abs(most) <= GOAL_POINTS else f"**{most:+.2f}**"
    apart, torch_apart = max(result.apart for result in mine), max(result.torch_apart for result in mine)
    return (
        f"| {TITLES[name]} | {len(mine)} | {mine[0].steps} | {mine[0].held_out} | {before:.4f} | {ours:.4f}"
        f" | {theirs:.4f} | {shown} | {largest} | {_mean(wide)} | {max(wide, key=abs):+.2f}"
        f" | {apart:.1e} | {torch_apart:.1e} |"
    )


def _mean(points: Sequence[float]) -> str:
    """With its standard error, where there are seeds to tell it by."""
    error = f" +- {np.std(points, ddof=1) / np.sqrt(len(points)):.2f}" if len(points) > 1 else ""
    return f"{np.mean(points):+.2f}{error}"


def main(arguments: Sequence[str]) -> None:
    """Run it as told."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks learning_quality")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--save", action="store_true", help="keep the results under docs/benchmarks")
    parser.add_argument("--quick", action="store_true", help="one seed of gas: seconds")
    chosen = parser.parse_args(arguments)
    tasks, seeds = (["gas"], 1) if chosen.quick else (chosen.tasks, chosen.seeds)
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as work:
        for name in tasks:
            results += run([name], range(seeds), Path(work))
            print(line(name, results), flush=True)
    if chosen.save:
        save(results)


def save(results: Sequence[Result], folder: Path = RESULTS) -> None:
    """Write the results."""
    keep("learning_quality", TITLE, {"results": [{**asdict(each), "points": each.points} for each in results]}, folder)
