"""Two sides in processes of their own, in turn; what each spends and how their losses compare."""

import json
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.benchmarks.step_data.cases import Case

ANSWER_S = 600
FIRST_TOLERANCE, EARLY_TOLERANCE = 1e-5, 2e-3
"""Of the first loss and of that after `EARLY_STEPS`, relative: Adam carries rounding on, later without bound."""
EARLY_STEPS = 10


class Side:
    """A side's process: told a number of steps, it answers with what they took."""

    def __init__(self, which: str, case: Case, folder: Path, optimiser: str, threads: int) -> None:
        words = [which, case.name, str(folder), optimiser, str(threads)]
        command = [sys.executable, "-m", "tests.benchmarks.step_data.side", *words]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._told, self._said = self._process.stdin, self._process.stdout

    def steps(self, count: int) -> dict[str, Any]:
        """Train, and what it took."""
        self._told.write(f"{count}\n")
        self._told.flush()
        line = self._said.readline()
        if not line:
            raise RuntimeError(f"the side ended with exit code {self._process.wait(ANSWER_S)}: its error is above")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._told.close()
        self._process.wait(ANSWER_S)
        self._said.close()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a comparison found; times in milliseconds of CPU a step, memory in MB of peak resident size.

    ``ratio``: the median over the rounds of ours over torch's, of the same round.
    """

    case: str
    title: str
    parameters: int
    optimiser: str
    threads: int
    rounds: int
    torch_ms: float
    ours_ms: float
    ratio: float
    wall_ratio: float
    goal: float
    torch_mb: float
    ours_mb: float
    rss_ratio: float
    rss_goal: float
    first_loss: float
    last_loss: float

    def as_json(self) -> dict[str, Any]:
        """For the results' file."""
        return asdict(self)


def duel(
    case: Case, folder: Path, *, optimiser: str, threads: int, rounds: int, share: float = 1.0, alone: bool = False
) -> Outcome:
    """Both sides in turn, each round the other one first.

    Args:
        folder: as `made.make` left it.
        rounds: timed.
        share: of the case's steps in a round.
        alone: whether ours takes each step by itself.

    Raises:
        RuntimeError: the sides' losses differ by more than rounding explains: they are not the same net.
    """
    count = max(1, round(case.steps * share))
    with (
        Side("torch", case, folder, optimiser, threads) as torch,
        Side("alone" if alone else "ours", case, folder, optimiser, threads) as ours,
    ):
        sides = {"torch": torch, "ours": ours}
        first = {name: side.steps(1)["loss"] for name, side in sides.items()}
        _refuse_apart(case, first, FIRST_TOLERANCE)
        _refuse_apart(case, {name: side.steps(EARLY_STEPS)["loss"] for name, side in sides.items()}, EARLY_TOLERANCE)
        answers: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
        for number in range(rounds + 1):
            for name in sorted(sides, reverse=bool(number % 2)):
                answers[name].append(sides[name].steps(count))
    last = {name: said[-1]["loss"] for name, said in answers.items()}
    timed = {name: said[1:] for name, said in answers.items()}
    peaks = {name: said[-1]["peak_bytes"] for name, said in answers.items()}
    return Outcome(
        case=case.name,
        title=f"{case.title}, each step by itself" if alone else case.title,
        parameters=int((folder / "parameters").read_text(encoding="utf-8")),
        optimiser=optimiser,
        threads=threads,
        rounds=rounds,
        torch_ms=_median(timed["torch"], "cpu_s") * 1e3 / count,
        ours_ms=_median(timed["ours"], "cpu_s") * 1e3 / count,
        ratio=_ratio(timed, "cpu_s"),
        wall_ratio=_ratio(timed, "wall_s"),
        goal=case.goal if threads == 1 else case.threads_goal,
        torch_mb=peaks["torch"] / 1e6,
        ours_mb=peaks["ours"] / 1e6,
        rss_ratio=peaks["ours"] / peaks["torch"],
        rss_goal=case.rss_goal,
        first_loss=first["ours"],
        last_loss=last["ours"],
    )


def _refuse_apart(case: Case, losses: dict[str, float], tolerance: float) -> None:
    ours, theirs = losses["ours"], losses["torch"]
    if not abs(ours - theirs) <= tolerance * abs(theirs):
        raise RuntimeError(f"{case.name}: losses {ours} (ours) and {theirs} (torch) are not of the same net")


def _median(answers: list[dict[str, Any]], what: str) -> float:
    return statistics.median(float(answer[what]) for answer in answers)


def _ratio(timed: dict[str, list[dict[str, Any]]], what: str) -> float:
    pairs = zip(timed["ours"], timed["torch"], strict=True)
    return statistics.median(float(mine[what]) / float(theirs[what]) for mine, theirs in pairs)
