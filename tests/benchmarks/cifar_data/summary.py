"""From rounds to what was to be shown: accuracies by group, families apart, ours beside the reference."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from scipy import stats

from tests.benchmarks.cifar_data.arms import REFERENCE
from tests.benchmarks.cifar_data.grid import RoundAccount
from tests.benchmarks.cifar_data.setting import EVENTS, FAMILIES, family

Runs = Mapping[tuple[str, int], Sequence[RoundAccount]]  # by arm and seed
Figure = Callable[[Sequence[RoundAccount]], float]
GROUPS = ("stationary", "drifted")
LATE = 4  # from this round on, for means over rounds
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Paired:
    """Ours minus the reference, points of 100, over seeds: mean and interval."""

    mean: float
    low: float
    high: float
    by_seed: tuple[float, ...]


def of_group(account: RoundAccount, group: str) -> float:
    """Mean accuracy of the stationary or of the drifted clients."""
    mine = [a for client, a in account.accuracy.items() if (family(client) == "stationary") == (group == "stationary")]
    return float(np.mean(mine))


def final(group: str) -> Figure:
    """Accuracy after the last round."""
    return lambda rounds: of_group(rounds[-1], group)


def late(group: str) -> Figure:
    """Mean accuracy of the rounds from the fourth on; of the last where there are fewer."""
    return lambda rounds: float(np.mean([of_group(a, group) for a in rounds if a.number >= min(LATE, len(rounds))]))


def partition_of(account: RoundAccount) -> set[frozenset[int]]:
    """Clients by cohort."""
    groups: dict[int, set[int]] = {}
    for client, cohort in account.cohorts.items():
        groups.setdefault(cohort, set()).add(client)
    return {frozenset(members) for members in groups.values()}


def apart(account: RoundAccount) -> bool:
    """Whether no cohort holds clients of two families."""
    return all(len({family(client) for client in members}) == 1 for members in partition_of(account))


def exact(account: RoundAccount) -> bool:
    """Whether every family is one cohort."""
    return apart(account) and len(partition_of(account)) == len(FAMILIES)


def events_in(rounds: Sequence[RoundAccount]) -> list[RoundAccount]:
    """The rounds in which labels turned."""
    return [account for account in rounds if account.number in EVENTS]


def paired(runs: Runs, figure: Figure, confidence: float = CONFIDENCE) -> Paired | None:
    """Ours minus the reference over the seeds that both have; Student's interval, none for one seed."""
    seeds = sorted({s for arm, s in runs if arm == "ours"} & {s for arm, s in runs if arm == REFERENCE})
    if not seeds:
        return None
    gains = np.array([100 * (figure(runs["ours", s]) - figure(runs[REFERENCE, s])) for s in seeds])
    half = np.nan
    if len(gains) > 1:
        half = float(stats.t.ppf((1 + confidence) / 2, len(gains) - 1)) * gains.std(ddof=1) / sqrt(len(gains))
    return Paired(float(gains.mean()), gains.mean() - half, gains.mean() + half, tuple(map(float, gains)))


def summarise(runs: Runs) -> dict[str, Any]:
    """Figures by arm, ours beside the reference, as JSON values."""
    arms = {}
    for arm in dict.fromkeys(arm for arm, _ in runs):
        mine = {seed: rounds for (name, seed), rounds in sorted(runs.items()) if name == arm}
        arms[arm] = _arm(mine)
    gains = {
        f"{name} {group}": paired(runs, of(group))
        for name, of in (("final", final), ("late", late))
        for group in GROUPS
    }
    beside = {name: _plain(gain) for name, gain in gains.items() if gain is not None}
    return {"arms": arms, "ours minus reference, points": beside}


def _arm(seeds: Mapping[int, Sequence[RoundAccount]]) -> dict[str, Any]:
    every = list(seeds.values())
    events = [account for rounds in every for account in events_in(rounds)]
    figures = {f"{name} {group}": of(group) for name, of in (("final", final), ("late", late)) for group in GROUPS}
    return {
        "seeds": list(seeds),
        **{name: [round(figure(rounds), 4) for rounds in every] for name, figure in figures.items()},
        "events": len(events),
        "events with families apart": sum(map(apart, events)),
        "events with one cohort a family": sum(map(exact, events)),
        "families apart at the end": [apart(rounds[-1]) for rounds in every],
        "false flags": sum(_false_flags(rounds) for rounds in every),
        "missed flags": sum(_missed_flags(rounds) for rounds in every),
        "training, CPU s": round(float(np.mean([sum(a.training_cpu_s for a in rounds) for rounds in every])), 1),
        "server at an event, CPU s": _rounded([account.server_cpu_s for account in events], np.median),
        "server at an event, peak MiB": _rounded([account.server_peak_mib for account in events], np.max),
    }


def _false_flags(rounds: Sequence[RoundAccount]) -> int:
    return sum(a.number not in EVENTS or family(client) == "stationary" for a in rounds for client in a.flagged)


def _missed_flags(rounds: Sequence[RoundAccount]) -> int:
    due = [(a, client) for a in events_in(rounds) for client in a.losses if family(client) != "stationary"]
    return sum(client not in account.flagged for account, client in due)


def _rounded(values: Sequence[float], of: Callable[[Sequence[float]], Any]) -> float | None:
    return round(float(of(values)), 2) if values else None


def _plain(gain: Paired) -> dict[str, Any]:
    interval = [round(gain.low, 2), round(gain.high, 2)] if len(gain.by_seed) > 1 else None
    return {"mean": round(gain.mean, 2), "interval 95 %": interval, "by seed": [round(g, 2) for g in gain.by_seed]}
