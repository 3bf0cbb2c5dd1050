"""The table of means, and the bars with whether they hold."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from tests.benchmarks.recurring_data.run import Result

OURS = ("ours", "ours+merge", "ours+candidates", "ours-on-demand")
Value = Callable[[Result], float]
MEASURES: Mapping[str, Value] = MappingProxyType(
    {
        "next": lambda run: run.mean_next,
        "same": lambda run: run.mean_same,
        "kept": lambda run: run.kept[-1],
        "over": lambda run: run.kept[-1] - run.concepts,
        "agree": lambda run: float(np.mean(run.agreement)),
        "sent": lambda run: run.traffic,
        "scored": lambda run: run.evaluations,
    }
)


@dataclass(frozen=True, slots=True)
class Bar:
    """What one of our arms has to show on a data set.

    Attributes:
        claim: in words.
        value: what was measured; held where it is at most ``limit``.
        exceptions: patterns whose own mean misses it.
    """

    claim: str
    task: str
    arm: str
    value: float
    limit: float
    exceptions: str

    @property
    def held(self) -> bool:
        """Whether the data set's mean shows it."""
        return self.value <= self.limit


def table(results: Sequence[Result]) -> str:
    """Means over patterns and seeds, a line a data set and arm."""
    lines = [f"{'data set':9s} {'arm':16s} {'runs':>4s} " + " ".join(f"{name:>7s}" for name in MEASURES)]
    for task, arm in dict.fromkeys((r.task, r.arm) for r in results):
        mine = [r for r in results if (r.task, r.arm) == (task, arm)]
        digits = {"next": 3, "same": 3, "agree": 2, "sent": 0, "scored": 0}
        values = [f"{mean(mine, value):7.{digits.get(name, 1)}f}" for name, value in MEASURES.items()]
        lines.append(f"{task:9s} {arm:16s} {len(mine):4d} " + " ".join(values))
    return "\n".join(lines)


def bars(results: Sequence[Result]) -> list[Bar]:
    """Every bar for which both sides were run."""
    found = []
    for task in dict.fromkeys(r.task for r in results):
        arms = {arm: [r for r in results if (r.task, r.arm) == (task, arm)] for arm in {r.arm for r in results}}
        for arm in OURS:
            if arms.get(arm):
                found += _bars_of(task, arm, arms)
    return found


def bar_table(found: Sequence[Bar]) -> str:
    """A line a bar."""
    lines = []
    for bar in sorted(found, key=lambda bar: (bar.claim, OURS.index(bar.arm))):
        verdict = "held" if bar.held else "MISSED"
        by = f", missed by {bar.exceptions}" if bar.exceptions else ""
        lines.append(f"{bar.claim:40s} {bar.arm:16s} {bar.task:9s} {bar.value:7.2f} of {bar.limit:5.2f} {verdict}{by}")
    return "\n".join(lines)


def mean(runs: Sequence[Result], value: Value) -> float:
    """Mean over runs; NaN for none."""
    return float(np.mean([value(run) for run in runs])) if runs else float("nan")


def _bars_of(task: str, arm: str, arms: Mapping[str, Sequence[Result]]) -> list[Bar]:
    def both(rival: str, measure: str, pattern: str | None) -> tuple[float, float]:
        ours, theirs = _shared(arms[arm], arms.get(rival, ()))
        return _mean_of(ours, measure, pattern), _mean_of(theirs, measure, pattern)

    def points_behind(rival: str) -> Callable[[str | None], float]:
        def points(pattern: str | None) -> float:
            ours, theirs = both(rival, "next", pattern)
            return 100 * (theirs - ours)

        return points

    def share_sent(pattern: str | None) -> float:
        ours, theirs = both("FedDrift", "sent", pattern)
        return ours / theirs

    claims: list[tuple[str, Callable[[str | None], float], float]] = [
        ("1 points behind the true clustering", points_behind("true"), 2.0),
        ("2 points behind FedDrift", points_behind("FedDrift"), 1.0),
        ("3 models sent, share of FedDrift's", share_sent, 0.25),
        ("4 points behind the reference", points_behind("reference"), 0.0),
        ("5 points behind FedAvg", points_behind("FedAvg"), 0.0),
        ("6 cohorts at the end above the concepts", lambda p: _mean_of(arms[arm], "over", p), 1.0),
    ]
    patterns = sorted({run.pattern for run in arms[arm]})
    return [
        Bar(claim, task, arm, value(None), limit, " ".join(p for p in patterns if value(p) > limit))
        for claim, value, limit in claims
        if np.isfinite(value(None))
    ]


def _shared(ours: Sequence[Result], theirs: Sequence[Result]) -> tuple[list[Result], list[Result]]:
    """The runs of two arms under the same patterns and seeds: what one lacks is no merit of the other."""
    common = {(run.pattern, run.seed) for run in ours} & {(run.pattern, run.seed) for run in theirs}
    return [r for r in ours if (r.pattern, r.seed) in common], [r for r in theirs if (r.pattern, r.seed) in common]


def _mean_of(runs: Sequence[Result], measure: str, pattern: str | None) -> float:
    return mean([run for run in runs if pattern in (None, run.pattern)], MEASURES[measure])
