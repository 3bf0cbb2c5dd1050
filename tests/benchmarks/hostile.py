"""``python -m tests.benchmarks hostile``: what 20 % hostile gateways cost the honest ones.

Motion sensors, twelve honest gateways (five remounted one way, five another, two untouched) and three
hostile ones, one that claims to be of each family. Real data, net, training graph, coding, screening and
strategy; no broker. Hostile gateways have the data of an honest one and send it spoilt. Every arm is kept as it
ends (``--keep FILE``), so that a run that was stopped goes on.
"""

import argparse
import json
import logging
import math
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np
import structlog

from server_bridge.demo.plan import Family, GatewayPlan, plan_fleet
from server_bridge.flower.engine import run_round
from server_bridge.flower.grid import MqttGrid
from server_bridge.flower.strategies import StrategySettings, make_strategy
from tests.benchmarks.hostile_acts import hostile_gateway
from tests.benchmarks.motion_fleet import MotionFleet
from tests.benchmarks.report import RESULTS
from tests.flower.memory_fleet import MemoryFleet

HONEST = 12
ROUNDS = 12
QUICK_ROUNDS = 4
SEEDS, DRAWS = 4, 4
MODES: Mapping[str, StrategySettings] = {
    "mean": StrategySettings(),
    "mean, opposing parted": StrategySettings(part_opposing=True),
    "trimmed-mean": StrategySettings(aggregation="trimmed-mean"),
    "median": StrategySettings(aggregation="median"),
    "krum": StrategySettings(aggregation="krum"),
}
QUICK_MODES = ("mean", "mean, opposing parted")
HOSTILE = (("hostile-1", Family.PERMUTED), ("hostile-2", Family.FLIPPED), ("hostile-3", Family.STATIONARY))


# What is refused never reaches the mean, so that one mode is enough to see it.
REFUSED = ("NaN", "x1000", "zero", "copies")
# The three are honest for once: what more members cost or bring is no attack's doing.
GUESTS = "honest guests"
ATTACKS = ("x20", "sign flip", "false flags", "copies with noise", "constant push", GUESTS, *REFUSED)
# No gateway is hostile: one has drifted and does not flag.
SILENT_DRIFT, SILENT = "silent drift", "gw-03"
QUICK_ATTACKS = ("sign flip", "NaN", "copies")


@dataclass(frozen=True, slots=True)
class Arm:
    """One run.

    Attributes:
        accuracy: of the honest gateways on their holdout windows, mean by family.
        refused: how many hostile replies were refused, by reason.
        shortened: how many hostile updates counted at another length.
        honest: the same two counts for honest gateways.
        cohorts: how many there are at the end.
    """

    accuracy: dict[str, float]
    refused: dict[str, int]
    shortened: int
    honest: dict[str, int]
    cohorts: int


@dataclass(frozen=True, slots=True)
class Row:
    """One mode under one attack, over seeds and draws, by family where it says so.

    Attributes:
        accuracy: mean over runs.
        points_lost: accuracy of the same mode, seed and draw without hostile gateways minus this one's, points of
            100, mean over runs; for ``silent drift`` too: the gateway is honest, and was to flag.
        error: standard error of this mean, of the differences' deviation; 0 for a single run.
        by_seed: the difference in every run: seed by seed, draw by draw.
        refused: hostile replies that were refused, by reason, over all seeds.
        shortened: hostile updates that counted at another length.
        honest: honest replies refused, or noted (shortened, taken back), by reason.
        cohorts: how many there were at the end, by run.
    """

    mode: str
    attack: str
    accuracy: dict[str, float]
    points_lost: dict[str, float]
    error: dict[str, float]
    by_seed: dict[str, list[float]]
    refused: dict[str, int]
    shortened: int
    honest: dict[str, int]
    cohorts: list[int]


def main(arguments: list[str]) -> None:
    """Run, print, and with ``--save`` keep the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks hostile")
    parser.add_argument("--quick", action="store_true", help="one seed, four rounds, three attacks, two modes")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"how many (default {SEEDS})")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--draws", type=int, default=DRAWS, help=f"of a seed's minibatches (default {DRAWS})")
    parser.add_argument("--modes", nargs="+", choices=MODES, help="default: all")
    parser.add_argument("--keep", type=Path, help="a file that every arm is kept in; what it has is not run again")
    parser.add_argument("--save", action="store_true", help="keep the results under docs/benchmarks")
    chosen = parser.parse_args(arguments)
    os.nice(19)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    began_s = time.monotonic()
    seeds = range(chosen.first_seed, chosen.first_seed + (1 if chosen.quick else chosen.seeds))
    modes = chosen.modes or (QUICK_MODES if chosen.quick else tuple(MODES))
    rows = run(seeds, modes, draws=1 if chosen.quick else chosen.draws, quick=chosen.quick, keep=chosen.keep)
    for row in rows:
        losses = " ".join(f"{f} {points:+5.1f} +-{row.error[f]:3.1f}" for f, points in row.points_lost.items())
        told = f"refused {row.refused}, shortened {row.shortened}, honest {row.honest}"
        print(f"  {row.mode:31s} {row.attack:18s} lost, points: {losses}   {told}")
    print(f"  {time.monotonic() - began_s:.0f} s")
    if chosen.save:
        _save(rows, modes)


def _save(rows: list[Row], modes: Sequence[str]) -> None:
    """Rows of modes that were not run stay."""
    file = RESULTS / "hostile.json"
    known = json.loads(file.read_text(encoding="utf-8"))["rows"] if file.exists() else []
    told = [row for row in known if row.get("mode") in set(MODES) - set(modes)] + [asdict(row) for row in rows]
    told.sort(key=lambda row: list(MODES).index(row["mode"]))
    content = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "rows": told}
    file.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def run(
    seeds: Sequence[int], modes: Sequence[str], *, draws: int = 1, quick: bool, keep: Path | None = None
) -> list[Row]:
    """Every mode under every attack, as points of accuracy lost beside the same mode without hostile gateways.

    Of what is refused one draw a seed: each is what it would be without hostile gateways.
    """
    rounds, attacks = (QUICK_ROUNDS, QUICK_ATTACKS) if quick else (ROUNDS, (*ATTACKS, SILENT_DRIFT))
    kept = _kept(keep)
    calm: dict[tuple[str, int, int], Arm] = {}
    pairs: dict[tuple[str, str], list[tuple[Arm, Arm]]] = {}
    for seed in seeds:
        with tempfile.TemporaryDirectory() as work:
            fleet = MotionFleet(Path(work), plans(), seed)
            for draw, mode in product(range(draws), modes):
                for attack in ("none", *(a for a in attacks if _asked(a, mode, draw))):
                    key = f"{seed}, {mode}, {attack}, {rounds} rounds" + (f", draw {draw}" if draw else "")
                    arm = kept.get(key) or run_arm(fleet, MODES[mode], attack, rounds, draw)
                    if attack == "none":
                        calm[mode, seed, draw] = arm
                    pairs.setdefault((mode, attack), []).append((calm[mode, seed, draw], arm))
                    if key not in kept:
                        _keep(keep, key, arm)
                    shown = {family: round(accuracy, 3) for family, accuracy in arm.accuracy.items()}
                    print(f"  seed {key}: accuracy {shown}, {arm.cohorts} cohorts", flush=True)
    return [_row(mode, attack, found) for (mode, attack), found in pairs.items()]


def _asked(attack: str, mode: str, draw: int) -> bool:
    return (mode == "mean" or attack not in (GUESTS, *REFUSED)) and (draw == 0 or attack not in REFUSED)


def run_arm(motion: MotionFleet, settings: StrategySettings, attack: str, rounds: int, draw: int = 0) -> Arm:
    """An adaptation under one attack; ``none`` for the honest gateways alone."""
    hostile = [] if attack in ("none", SILENT_DRIFT) else [name for name, _ in HOSTILE]
    honest = [name for name in motion.clients if name not in dict(HOSTILE)]
    fleet = MemoryFleet({name: motion.gateway(name) for name in honest})
    for name in hostile:
        fleet.members[name] = hostile_gateway(motion, fleet, name, attack)
    strategy = make_strategy(settings, flagged=_flags(motion, fleet, attack))
    arrays = motion.bundle.initial_weights()
    refused, shortened, harmed = Counter[str](), 0, Counter[str]()
    for number in range(1, rounds + 1):
        outcome = run_round(strategy, MqttGrid(fleet, motion.settings(number, draw)), arrays, number, {}, 60.0)
        arrays = outcome.arrays
        for name, reason in outcome.failed.items():
            (harmed if name in honest else refused)[reason.split(":")[0]] += 1
        noted = {name: reason.split(":")[0] for name, reason in outcome.noted.items()}
        shortened += sum(noted.get(name) == "clipped-update" for name in hostile)
        harmed += Counter(noted[name] for name in noted.keys() & set(honest))
    weights = {name: outcome.cohort_weights[outcome.assignments[name]] for name in honest}
    accuracy = motion.by_family(motion.accuracies(weights, honest))
    return Arm(accuracy, dict(refused), shortened, dict(+harmed), len(set(outcome.assignments.values())))


def plans() -> list[GatewayPlan]:
    return [*plan_fleet(HONEST), *(GatewayPlan(name, family, 10) for name, family in HOSTILE)]


def _kept(keep: Path | None) -> dict[str, Arm]:
    if keep is None or not keep.exists():
        return {}
    rows = [json.loads(line) for line in keep.read_text(encoding="utf-8").splitlines()]
    return {row.pop("key"): Arm(**row) for row in rows}


def _keep(keep: Path | None, key: str, arm: Arm) -> None:
    if keep is not None:
        with keep.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"key": key, **asdict(arm)}) + "\n")


def _flags(motion: MotionFleet, fleet: MemoryFleet, attack: str) -> Callable[[int], set[int]]:
    """Who drifted flags in round 1, hostile ones like the family that they claim; false flags come in every round."""
    silent = {SILENT} if attack == SILENT_DRIFT else set()
    drifted = {fleet.node_id(n) for n in set(fleet.members) - silent if motion.clients[n].plan.drifts}
    false = {fleet.node_id(name) for name, _ in HOSTILE} if attack == "false flags" else set()
    return lambda number: drifted | false if number == 1 else false


def _row(mode: str, attack: str, pairs: Sequence[tuple[Arm, Arm]]) -> Row:
    """One row of pairs: without hostile gateways, with them."""
    arms = [arm for _, arm in pairs]
    families = list(arms[0].accuracy)
    lost = {f: [100 * (calm.accuracy[f] - arm.accuracy[f]) for calm, arm in pairs] for f in families}
    return Row(
        mode,
        attack,
        accuracy={f: round(float(np.mean([arm.accuracy[f] for arm in arms])), 4) for f in families},
        points_lost={f: round(float(np.mean(lost[f])), 2) for f in families},
        error={f: round(_standard_error(lost[f]), 2) for f in families},
        by_seed={f: [round(points, 2) for points in lost[f]] for f in families},
        refused=dict(sum((Counter(arm.refused) for arm in arms), Counter())),
        shortened=sum(arm.shortened for arm in arms),
        honest=dict(sum((Counter(arm.honest) for arm in arms), Counter())),
        cohorts=[arm.cohorts for arm in arms],
    )


def _standard_error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0
