"""The ways to choose a rate, and one run of each under one setting."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tests.benchmarks.fed_ade_data.fleet import Score, Setting, corrected, follow, untouched

NONE, CORRECTED, PUBLISHED, SCALED, MATCHED = "none", "shares only", "raw", "scaled", "its mean"
FIXED_RATES = 5
ORDER = (NONE, CORRECTED, *(f"fixed {number}" for number in range(1, FIXED_RATES + 1)), PUBLISHED, SCALED, MATCHED)


@dataclass(frozen=True, slots=True)
class Result:
    """One arm under one setting; see `Score`."""

    task: str
    kind: str
    schedule: str
    seed: int
    arm: str
    served: float
    adapted: float
    rate: float | None


def fixed_rates(maximum: float) -> list[float]:
    """From a hundredth of the maximum to the maximum, in half decades."""
    return [float(rate) for rate in np.geomspace(maximum / 100, maximum, FIXED_RATES)]


def run_arms(setting: Setting) -> list[Result]:
    """Every arm on the same streams.

    none: the release; shares only: the release, weighed by the estimated shares of the classes; fixed 1 to 5; raw:
    Fed-ADE as published; scaled: ours; its mean: the constant rate that is the scaled arm's mean on these streams.
    """
    maximum = setting.task.maximum
    scores: dict[str, Score] = {NONE: untouched(setting), CORRECTED: corrected(setting)}
    for number, rate in enumerate(fixed_rates(maximum), 1):
        scores[f"fixed {number}"] = follow(setting, rate, rate)
    scores[PUBLISHED] = follow(setting, maximum / 100, maximum, published=True)
    scores[SCALED] = follow(setting, maximum / 100, maximum)
    mean = scores[SCALED].rate or maximum
    scores[MATCHED] = follow(setting, mean, mean)
    task = setting.task
    return [
        Result(task.name, task.kind, setting.schedule, setting.seed, arm, score.served, score.adapted, score.rate)
        for arm, score in scores.items()
    ]


def by_setting(results: Sequence[Result]) -> Mapping[tuple[str, str, str], dict[int, dict[str, Result]]]:
    """Results by (task, kind, schedule), seed and arm; a seed that lacks an arm is left out."""
    groups: dict[tuple[str, str, str], dict[int, dict[str, Result]]] = {}
    for result in results:
        group = groups.setdefault((result.task, result.kind, result.schedule), {})
        group.setdefault(result.seed, {})[result.arm] = result
    whole = {
        key: {seed: arms for seed, arms in seeds.items() if set(ORDER) <= set(arms)} for key, seeds in groups.items()
    }
    return {key: seeds for key, seeds in whole.items() if seeds}
