"""A training step on stock onnxruntime beside torch eager: time, memory, session creation, hot swap.

``python -m tests.benchmarks training_step [--nets ...] [--rounds N] [--threads 1 2] [--save] [--quick]``
"""

import argparse
import json
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.report import RESULTS, machine
from tests.benchmarks.step_data.cases import CASES, Case, case
from tests.benchmarks.step_data.chart import chart
from tests.benchmarks.step_data.duel import Outcome, duel
from tests.benchmarks.step_data.made import make
from tests.benchmarks.step_data.side import OPTIMISERS
from tests.benchmarks.step_data.swap import Swap, measure

TITLE = "Training step, batch 32, beside torch eager"
SESSION_GOAL_MS, SWAP_GOAL_MS = 60.0, 50.0
QUICK_NETS = ("mlp",)


@dataclass(frozen=True, slots=True)
class Findings:
    """What a run found."""

    outcomes: list[Outcome]
    swaps: list[Swap]

    def as_json(self) -> dict[str, Any]:
        """For the results' file."""
        return {
            "title": TITLE,
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "machine": machine(),
            "steps": [outcome.as_json() for outcome in self.outcomes],
            "sessions": [swap.as_json() for swap in self.swaps],
        }


def run(
    cases: Sequence[Case],
    folder: Path,
    *,
    rounds: int,
    threads: Sequence[int],
    optimisers: Sequence[str] = OPTIMISERS,
    share: float = 1.0,
) -> Findings:
    """Compare every net, printing as it goes.

    Args:
        folder: for bundles and exports.
        rounds: timed, interleaved.
        threads: more than one with the last of the optimisers only.
        share: of a case's steps in a round.

    Raises:
        RuntimeError: the two sides do not compute the same loss.
    """
    outcomes, swaps = [], []
    for entry in cases:
        make(entry, folder / entry.name)
        swaps.append(measure(entry.name, folder / entry.name))
        print(swap_line(swaps[-1]), flush=True)
        for count in threads:
            for optimiser in optimisers if count == 1 else optimisers[-1:]:
                for alone in (False, True) if entry.alone and count == 1 else (False,):
                    outcome = duel(
                        entry,
                        folder / entry.name,
                        optimiser=optimiser,
                        threads=count,
                        rounds=rounds,
                        share=share,
                        alone=alone,
                    )
                    outcomes.append(outcome)
                    print(step_line(outcomes[-1]), flush=True)
    return Findings(outcomes, swaps)


def step_line(outcome: Outcome) -> str:
    """A line of the table in `docs/benchmarks.md`."""
    ratio = _bold_if(f"{outcome.ratio:.2f}", missed=outcome.ratio > outcome.goal)
    memory = _bold_if(f"{outcome.rss_ratio:.2f}", missed=outcome.rss_ratio > outcome.rss_goal)
    return (
        f"| {outcome.title} | {outcome.parameters:,} | {outcome.optimiser} | {outcome.threads}"
        f" | {outcome.torch_ms:.3f} ms | {outcome.ours_ms:.3f} ms | {ratio} | {outcome.goal:.2f}"
        f" | {outcome.torch_mb:.0f} MB | {outcome.ours_mb:.0f} MB | {memory} |"
    )


def swap_line(swap: Swap) -> str:
    """A line for people."""
    session = _bold_if(f"{swap.session_ms:.1f} ms", missed=swap.session_ms > SESSION_GOAL_MS)
    swapped = _bold_if(f"{swap.swap_ms:.1f} ms", missed=swap.swap_ms > SWAP_GOAL_MS)
    return f"| {swap.case} | {session} | {swapped} | {'yes' if swap.bit_equal else '**no**'} |"


def main(arguments: Sequence[str]) -> None:
    """Run it as told."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks training_step")
    names = [entry.name for entry in CASES]
    parser.add_argument("--nets", nargs="+", choices=names, default=names)
    parser.add_argument("--rounds", type=int, default=15, help="timed, interleaved (default 15)")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--optimisers", nargs="+", choices=OPTIMISERS, default=OPTIMISERS)
    parser.add_argument("--save", action="store_true", help="keep the results under docs/benchmarks")
    parser.add_argument("--quick", action="store_true", help="a net, few steps: seconds")
    chosen = parser.parse_args(arguments)
    nets, rounds, threads, share = chosen.nets, chosen.rounds, chosen.threads, 1.0
    if chosen.quick:
        nets, rounds, threads, share = QUICK_NETS, 2, [1], 0.1
    with tempfile.TemporaryDirectory() as folder:
        found = run(
            [case(name) for name in nets],
            Path(folder),
            rounds=rounds,
            threads=threads,
            optimisers=chosen.optimisers,
            share=share,
        )
    if chosen.save:
        save(found)


def save(found: Findings, folder: Path = RESULTS) -> None:
    """Write results and picture."""
    folder.mkdir(parents=True, exist_ok=True)
    content = json.dumps(found.as_json(), indent=2)
    (folder / "training_step.json").write_text(content + "\n", encoding="utf-8")
    (folder / "training_step.svg").write_text(chart(found.outcomes), encoding="utf-8")


def _bold_if(words: str, *, missed: bool) -> str:
    return f"**{words}**" if missed else words
