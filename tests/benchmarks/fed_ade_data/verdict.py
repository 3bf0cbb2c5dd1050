"""What the adaptive rates gain, paired by seed, and what of it is owed to adapting the rate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tests.benchmarks.fed_ade_data.arms import FIXED_RATES, MATCHED, NONE, ORDER, Result, by_setting

AIMS: Mapping[str, tuple[float, float]] = {"label": (1.0, 4.0), "covariate": (3.0, 6.0)}
"""Published margins over a fixed rate, in points."""
FIXED = tuple(f"fixed {number}" for number in range(1, FIXED_RATES + 1))


@dataclass(frozen=True, slots=True)
class Gain:
    """One adaptive arm under one setting, points of accuracy as served; each the mean over seeds.

    Args:
        over_mean: above the mean of the fixed rates, and the standard error of that over seeds.
        over_best: above the fixed rate that is best on average over these seeds.
        over_matched: above the constant rate of the same mean; None for the raw arm.
        over_none: above no adaptation.
        after: above the mean fixed rate, once a batch has been adapted to: the source's measure.
    """

    task: str
    kind: str
    schedule: str
    arm: str
    seeds: int
    over_mean: float
    error: float
    over_best: float
    over_matched: float | None
    over_none: float
    after: float


def gains(results: Sequence[Result], arms: Sequence[str]) -> list[Gain]:
    """Of every setting."""
    found = []
    for (task, kind, schedule), seeds in by_setting(results).items():
        found += [_gain(task, kind, schedule, arm, list(seeds.values())) for arm in arms]
    return found


def table(results: Sequence[Result]) -> str:
    """Accuracy as served by arm, in percent: a line a setting."""
    lines = [f"{'task':10s}{'shift':10s}{'schedule':10s}seeds" + "".join(f"{arm:>12s}" for arm in ORDER)]
    for (task, kind, schedule), seeds in by_setting(results).items():
        means = [100 * float(np.mean([arms[arm].served for arms in seeds.values()])) for arm in ORDER]
        lines.append(f"{task:10s}{kind:10s}{schedule:10s}{len(seeds):5d}" + "".join(f"{mean:12.1f}" for mean in means))
    return "\n".join(lines)


def gain_table(found: Sequence[Gain]) -> str:
    """Points gained: a line a setting and arm, then the mean of each kind of shift."""
    lines = [
        f"{'task':10s}{'shift':10s}{'schedule':10s}{'arm':8s}{'over mean fixed':>18s}{'best':>7s}{'matched':>9s}"
        f"{'none':>7s}{'after':>7s}"
    ]
    lines += [_line(gain) for gain in found]
    for kind, (least, most) in AIMS.items():
        for arm in dict.fromkeys(gain.arm for gain in found):
            mine = [gain.over_mean for gain in found if (gain.kind, gain.arm) == (kind, arm)]
            if mine:
                lines.append(
                    f"{kind} shift, {arm}: {np.mean(mine):+.2f} points over the mean fixed rate"
                    f" (aim {least:g} to {most:g}); between {min(mine):+.2f} and {max(mine):+.2f}"
                )
    return "\n".join(lines)


def _gain(task: str, kind: str, schedule: str, arm: str, seeds: Sequence[Mapping[str, Result]]) -> Gain:
    served = {name: np.array([arms[name].served for arms in seeds]) for name in ORDER}
    after = {name: np.array([arms[name].adapted for arms in seeds]) for name in ORDER}
    mean_fixed = np.mean([served[name] for name in FIXED], axis=0)
    over = 100 * (served[arm] - mean_fixed)
    best = max(FIXED, key=lambda name: float(served[name].mean()))
    error = float(over.std(ddof=1) / np.sqrt(len(over))) if len(over) > 1 else float("nan")
    return Gain(
        task=task,
        kind=kind,
        schedule=schedule,
        arm=arm,
        seeds=len(over),
        over_mean=float(over.mean()),
        error=error,
        over_best=100 * float((served[arm] - served[best]).mean()),
        over_matched=100 * float((served[arm] - served[MATCHED]).mean()) if arm == "scaled" else None,
        over_none=100 * float((served[arm] - served[NONE]).mean()),
        after=100 * float((after[arm] - np.mean([after[name] for name in FIXED], axis=0)).mean()),
    )


def _line(gain: Gain) -> str:
    matched = "" if gain.over_matched is None else f"{gain.over_matched:+.2f}"
    return (
        f"{gain.task:10s}{gain.kind:10s}{gain.schedule:10s}{gain.arm:8s}{gain.over_mean:+11.2f} ± {gain.error:4.2f}"
        f"{gain.over_best:+7.2f}{matched:>9s}{gain.over_none:+7.2f}{gain.after:+7.2f}"
    )
