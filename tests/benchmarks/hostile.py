"""``python -m tests.benchmarks hostile``: what 20 % hostile gateways cost the honest ones.

Motion sensors, twelve honest gateways (five remounted one way, five another, two untouched) and three
hostile ones, one that claims to be of each family. Real data, net, training graph, coding, screening and
strategy; no broker. Hostile gateways have the data of an honest one and send it spoilt.
"""

import argparse
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import structlog

from edge_agent.wire.messages import Train
from edge_agent.wire.tensors import Weights, decode_weights
from server_bridge.aggregation.robust import RuleName
from server_bridge.demo.plan import Family, GatewayPlan, plan_fleet
from server_bridge.flower.engine import run_round
from server_bridge.flower.grid import MqttGrid
from server_bridge.flower.strategies import StrategySettings, make_strategy
from tests.benchmarks.motion_fleet import MotionFleet
from tests.benchmarks.report import RESULTS
from tests.flower.memory_fleet import MemoryFleet, MemoryGateway

HONEST = 12
ROUNDS = 12
QUICK_ROUNDS = 4
SEEDS = 2
RULES: tuple[RuleName, ...] = ("mean", "trimmed-mean", "median", "krum")
HOSTILE = (("hostile-1", Family.PERMUTED), ("hostile-2", Family.FLIPPED), ("hostile-3", Family.STATIONARY))
Spoil = Callable[[Weights], Weights]


def _scaled(factor: float) -> Spoil:
    return lambda delta: {name: tensor * np.float32(factor) for name, tensor in delta.items()}


def _nan(delta: Weights) -> Weights:
    spoilt = {name: tensor.copy() for name, tensor in delta.items()}
    next(iter(spoilt.values())).flat[0] = np.nan
    return spoilt


SPOILS: Mapping[str, Spoil] = {
    "NaN": _nan,
    "x1000": _scaled(1000),
    "x20": _scaled(20),
    "sign flip": _scaled(-1),
    "zero": _scaled(0),
}
# What is refused never reaches the mean, so that one rule is enough to see it.
REFUSED = ("NaN", "x1000", "zero", "copies")
ATTACKS = ("x20", "sign flip", "false flags", *REFUSED)
QUICK_ATTACKS = ("sign flip", "NaN", "copies")


@dataclass(frozen=True, slots=True)
class Arm:
    """One run.

    Attributes:
        accuracy: of the honest gateways on their holdout windows, mean by family.
        refused: how many hostile replies were refused, by reason.
        cohorts: how many there are at the end.
    """

    accuracy: dict[str, float]
    refused: dict[str, int]
    cohorts: int


@dataclass(frozen=True, slots=True)
class Row:
    """One rule under one attack, means over seeds, by family where it says so.

    Attributes:
        points_lost: accuracy of the same rule without hostile gateways minus this one's, points of 100.
        refused: hostile replies that were refused, by reason, over all seeds.
        cohorts: how many there were at the end, by seed.
    """

    rule: str
    attack: str
    accuracy: dict[str, float]
    points_lost: dict[str, float]
    refused: dict[str, int]
    cohorts: list[int]


def main(arguments: list[str]) -> None:
    """Run, print, and with ``--save`` keep the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks hostile")
    parser.add_argument("--quick", action="store_true", help="one seed, four rounds, three attacks, two rules")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"how many (default {SEEDS})")
    parser.add_argument("--save", action="store_true", help="keep the results under docs/benchmarks")
    chosen = parser.parse_args(arguments)
    os.nice(19)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    began_s = time.monotonic()
    rows = run(quick=chosen.quick, seeds=chosen.seeds)
    for row in rows:
        losses = " ".join(f"{family} {points:+5.1f}" for family, points in row.points_lost.items())
        print(f"  {row.rule:13s} {row.attack:12s} lost, points: {losses}   refused {row.refused}")
    print(f"  {time.monotonic() - began_s:.0f} s")
    if chosen.save:
        content = {"date": time.strftime("%Y-%m-%d", time.gmtime()), "rows": [asdict(row) for row in rows]}
        (RESULTS / "hostile.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def run(*, quick: bool, seeds: int) -> list[Row]:
    """Every rule under every attack, as points of accuracy lost beside the same rule without hostile gateways."""
    seeds, rounds = (1, QUICK_ROUNDS) if quick else (seeds, ROUNDS)
    rules, attacks = (RULES[:2], QUICK_ATTACKS) if quick else (RULES, ATTACKS)
    arms: dict[tuple[str, str], list[Arm]] = {}
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as work:
            fleet = MotionFleet(Path(work), plans(), seed)
            for rule in rules:
                for attack in ("none", *(a for a in attacks if rule == "mean" or a not in REFUSED)):
                    arm = run_arm(fleet, rule, attack, rounds)
                    arms.setdefault((rule, attack), []).append(arm)
                    shown = {family: round(accuracy, 3) for family, accuracy in arm.accuracy.items()}
                    print(f"  seed {seed}, {rule}, {attack}: accuracy {shown}, {arm.cohorts} cohorts", flush=True)
    return [_row(rule, attack, found, arms[rule, "none"]) for (rule, attack), found in arms.items()]


def run_arm(motion: MotionFleet, rule: RuleName, attack: str, rounds: int) -> Arm:
    """An adaptation under one attack; ``none`` for the honest gateways alone."""
    hostile = [] if attack == "none" else [name for name, _ in HOSTILE]
    honest = [name for name in motion.clients if name not in dict(HOSTILE)]
    fleet = MemoryFleet({name: motion.gateway(name) for name in honest})
    for name in hostile:
        fleet.members[name] = _hostile(motion, fleet, name, attack)
    flagged = _flags(motion, fleet, attack)
    strategy = make_strategy(StrategySettings(aggregation=rule), flagged=flagged)
    arrays, refused = motion.bundle.initial_weights(), dict[str, int]()
    for number in range(1, rounds + 1):
        outcome = run_round(strategy, MqttGrid(fleet, motion.settings(number)), arrays, number, {}, 60.0)
        arrays = outcome.arrays
        assert not set(outcome.failed) & set(honest), outcome.failed
        for reason in outcome.failed.values():
            refused[reason.split(":")[0]] = refused.get(reason.split(":")[0], 0) + 1
    weights = {name: outcome.cohort_weights[outcome.assignments[name]] for name in honest}
    accuracy = motion.by_family(motion.accuracies(weights, honest))
    return Arm(accuracy, refused, len(set(outcome.assignments.values())))


def plans() -> list[GatewayPlan]:
    return [*plan_fleet(HONEST), *(GatewayPlan(name, family, 10) for name, family in HOSTILE)]


def _flags(motion: MotionFleet, fleet: MemoryFleet, attack: str) -> Callable[[int], set[int]]:
    """Who drifted flags in round 1, hostile ones like the family that they claim; false flags come in every round."""
    drifted = {fleet.node_id(name) for name in fleet.members if motion.clients[name].plan.drifts}
    false = {fleet.node_id(name) for name, _ in HOSTILE} if attack == "false flags" else set()
    return lambda number: drifted | false if number == 1 else false


def _hostile(motion: MotionFleet, fleet: MemoryFleet, name: str, attack: str) -> MemoryGateway:
    gateway = motion.gateway(name)
    if attack in SPOILS:
        return replace(gateway, learn=lambda base, order: SPOILS[attack](motion.learn(name, base, order)))
    if attack == "copies":
        family = motion.clients[name].plan.family
        victim = next(n for n, c in motion.clients.items() if c.plan.family is family and n != name)
        return replace(
            gateway,
            learn=lambda base, order: _latest_of(motion, fleet, victim),
            tamper=lambda order, outcome: replace(outcome, arrived_s=1.0),
        )
    return gateway


def _latest_of(motion: MotionFleet, fleet: MemoryFleet, victim: str) -> Weights:
    """The update that another gateway sends in this round."""
    order = next(order.action for order in reversed(fleet.orders) if order.gateway == victim)
    assert isinstance(order, Train)
    return motion.learn(victim, decode_weights(fleet.blobs[order.base.digest]), order)


def _row(rule: str, attack: str, arms: list[Arm], calm: list[Arm]) -> Row:
    mean = {f: float(np.mean([arm.accuracy[f] for arm in arms])) for f in calm[0].accuracy}
    before = {f: float(np.mean([arm.accuracy[f] for arm in calm])) for f in calm[0].accuracy}
    refused: dict[str, int] = {}
    for arm in arms:
        for reason, count in arm.refused.items():
            refused[reason] = refused.get(reason, 0) + count
    return Row(
        rule,
        attack,
        accuracy={family: round(value, 4) for family, value in mean.items()},
        points_lost={family: round(100 * (before[family] - value), 2) for family, value in mean.items()},
        refused=refused,
        cohorts=[arm.cohorts for arm in arms],
    )
