"""``python -m tests.benchmarks gas_drift_cohorts [--quick] [--seeds N] [--save]``: cohorts on sensors that have aged.

Nine gateways on gas batch 1; before round 3 three move on to batch 3 and three to batch 4. Flags are those of
Algorithm 2; in one arm those of the product's monitor. Ours with and without reliabilities, the reference, paper mode
and FedAvg on one in-memory Grid.
"""

import argparse
import json
import logging
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import structlog
from flwr.app import Array, ArrayRecord
from scipy import stats

from server_bridge.flower.records import prepare_process
from tests.benchmarks.cifar_data.arms import strategy_of
from tests.benchmarks.cifar_data.grid import CountingGrid, RoundAccount
from tests.benchmarks.gas_chart import chart
from tests.benchmarks.gas_fleet import BATCHES, DRIFT_ROUND, GasGateway, GasGateways
from tests.benchmarks.report import RESULTS, stamp
from tests.shared_data import DATA

MONITORED = "ours, monitor's flags"
ARMS: Mapping[str, str] = {
    "ours": "ours",
    "ours, no reliability": "ours",
    "reference": "reference",
    "paper mode": "paper mode",
    "FedAvg": "FedAvg",
    MONITORED: "ours",
}
QUICK_ARMS = ("ours", "FedAvg")
ROUNDS, SEEDS, QUICK_SEEDS = 10, 20, 2
GROUPS: Mapping[str, tuple[int, ...]] = {
    "stayed": tuple(g for g, batch in BATCHES.items() if batch == 1),
    "batch 3": tuple(g for g, batch in BATCHES.items() if batch == 3),
    "batch 4": tuple(g for g, batch in BATCHES.items() if batch == 4),
}


@dataclass(frozen=True, slots=True)
class GasRun:
    """One arm and seed; accuracies by group.

    Attributes:
        before: after the calm rounds, on batch 1.
        drifted: of the same models, on what the gateways measure then.
        after: at the end.
        by_round: after each round.
        flagged: gateways that flagged when they drifted; ``false_flags``: all other flags.
        cohorts: gateways by cohort after the drift's round.
    """

    arm: str
    seed: int
    before: dict[str, float]
    drifted: dict[str, float]
    after: dict[str, float]
    by_round: list[dict[str, float]]
    flagged: list[int]
    false_flags: int
    cohorts: list[list[int]]

    @property
    def apart(self) -> bool:
        """Whether no cohort holds gateways of two groups."""
        return all(len({BATCHES[gateway] for gateway in cohort}) == 1 for cohort in self.cohorts)

    @property
    def exact(self) -> bool:
        """Whether every group is one cohort."""
        return self.apart and len(self.cohorts) == len(GROUPS)


def main(arguments: Sequence[str]) -> None:
    """Run, print, keep the results where asked."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks gas_drift_cohorts")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_SEEDS} seeds, two arms")
    parser.add_argument("--seeds", type=int, help=f"how many (default {SEEDS})")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them (default 0)")
    parser.add_argument("--save", action="store_true", help="keep the results under docs/benchmarks")
    options = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    seeds = options.seeds or (QUICK_SEEDS if options.quick else SEEDS)
    runs = run(range(options.first_seed, options.first_seed + seeds), QUICK_ARMS if options.quick else tuple(ARMS))
    for arm, figures in summarise(runs).items():
        print(f"  {arm:22s} {json.dumps(figures)}")
    print(f"  ours minus reference, points: {json.dumps(beside_reference(runs))}")
    if options.save:
        save(runs)


def run(seeds: Sequence[int], arms: Sequence[str], data: Path = DATA) -> list[GasRun]:
    """Every arm with every seed."""
    runs = []
    with tempfile.TemporaryDirectory() as work:
        for seed in seeds:
            fleet = GasGateways(data, Path(work), seed)
            for arm in arms:
                runs.append(run_arm(fleet, arm))
                print(f"  seed {seed}, {arm}: cohorts {runs[-1].cohorts}, after {runs[-1].after}", flush=True)
    return runs


def run_arm(fleet: GasGateways, arm: str) -> GasRun:
    """Two calm rounds, the drift, and the rounds that follow."""
    prepare_process()
    gateways = {
        1 + number: GasGateway(fleet, number, arm in ("ours", MONITORED), arm == MONITORED) for number in BATCHES
    }
    rounds: list[RoundAccount] = []
    initial = ArrayRecord({name: Array(tensor) for name, tensor in fleet.bundle.initial_weights().items()})
    grid = CountingGrid(gateways, rounds.append)
    strategy_of(ARMS[arm], 1.0).start(grid=grid, initial_arrays=initial, num_rounds=ROUNDS)
    calm, drift = rounds[DRIFT_ROUND - 2], rounds[DRIFT_ROUND - 1]
    cohorts: dict[int, list[int]] = {}
    for gateway, cohort in sorted(drift.cohorts.items()):
        cohorts.setdefault(cohort, []).append(gateway)
    due = {gateway for gateway, batch in BATCHES.items() if batch != 1}
    flags = {(account.number, gateway) for account in rounds for gateway in account.flagged}
    return GasRun(
        arm,
        fleet.seed,
        before=by_group(calm.accuracy),
        drifted=by_group({g.number: g.arrived[DRIFT_ROUND] for g in gateways.values()}),
        after=by_group(rounds[-1].accuracy),
        by_round=[by_group(account.accuracy) for account in rounds],
        flagged=sorted(due & set(drift.flagged)),
        false_flags=len(flags - {(DRIFT_ROUND, gateway) for gateway in due}),
        cohorts=list(cohorts.values()),
    )


def by_group(accuracy: Mapping[int, float]) -> dict[str, float]:
    """Mean accuracy of each group."""
    return {group: round(float(np.mean([accuracy[g] for g in members])), 4) for group, members in GROUPS.items()}


def summarise(runs: Sequence[GasRun]) -> dict[str, dict[str, object]]:
    """Means over seeds by arm."""
    summary: dict[str, dict[str, object]] = {}
    for arm in dict.fromkeys(run.arm for run in runs):
        mine = [run for run in runs if run.arm == arm]
        summary[arm] = {
            "seeds": len(mine),
            **{when: _means([getattr(run, when) for run in mine]) for when in ("before", "drifted", "after")},
            "exact": sum(run.exact for run in mine),
            "apart": sum(run.apart for run in mine),
            "flagged": sum(len(run.flagged) for run in mine),
            "false flags": sum(run.false_flags for run in mine),
        }
    return summary


def beside_reference(runs: Sequence[GasRun]) -> dict[str, dict[str, object]]:
    """Ours minus the reference at the end, points of 100, by group: mean and Student's 95 % interval over seeds."""
    after = {(run.arm, run.seed): run.after for run in runs}
    seeds = [seed for arm, seed in after if arm == "ours" and ("reference", seed) in after]
    if len(seeds) < 2:
        return {}
    beside: dict[str, dict[str, object]] = {}
    for group in GROUPS:
        gains = np.array([100 * (after["ours", s][group] - after["reference", s][group]) for s in seeds])
        half = float(stats.t.ppf(0.975, len(gains) - 1)) * gains.std(ddof=1) / np.sqrt(len(gains))
        interval = [round(float(gains.mean() + side), 2) for side in (-half, half)]
        beside[group] = {"mean": round(float(gains.mean()), 2), "interval 95 %": interval}
    return beside


def save(runs: Sequence[GasRun], folder: Path = RESULTS) -> None:
    """Write runs and summary as JSON, and the picture."""
    content = {
        **stamp(),
        "summary": summarise(runs),
        "ours minus reference, points": beside_reference(runs),
        "runs": [asdict(run) for run in runs],
    }
    (folder / "gas_drift_cohorts.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    arms = [arm for arm in dict.fromkeys(run.arm for run in runs) if arm != MONITORED]
    curves = {
        arm: [_means(step) for step in zip(*(r.by_round for r in runs if r.arm == arm), strict=True)] for arm in arms
    }
    drawn = chart(curves, tuple(GROUPS), DRIFT_ROUND)
    (folder / "gas_drift_cohorts.svg").write_text(drawn, encoding="utf-8")


def _means(figures: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {group: round(float(np.mean([one[group] for one in figures])), 4) for group in GROUPS}
