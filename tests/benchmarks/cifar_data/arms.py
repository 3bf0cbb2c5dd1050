"""The strategies that are compared, and one run of one of them."""

import json
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType

from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAvg

from edge_agent.wire.tensors import Weights
from server_bridge.flower.clma import CLMA
from server_bridge.flower.drifts import Flagged
from server_bridge.flower.records import as_float32, prepare_process
from server_bridge.flower.strategies import StrategyName, StrategySettings, make_strategy
from tests.benchmarks.cifar_data.clients import CifarFleet, Monitors, clients_of
from tests.benchmarks.cifar_data.grid import CountingGrid, RoundAccount
from tests.benchmarks.cifar_data.images import CLASSES

REFERENCE = "reference"
RELIABLE, BEST_START = "ours, reliability", "ours, best start"
OURS: Mapping[str, StrategyName] = MappingProxyType(
    {"ours": "clma", RELIABLE: "clma", BEST_START: "clma", "paper mode": "clma-paper", "FedAvg": "fedavg"}
)
ARMS = ("ours", REFERENCE, "paper mode", "FedAvg")
# By name only: training on halves costs as much again, and the best start needs flags before the round.
ALL_ARMS = (*ARMS, RELIABLE, BEST_START)
MOST_NODES, MOST_CANDIDATES = 2, 3


def strategy_of(arm: str, participation: float, flagged: Flagged | None = None) -> FedAvg:
    """A fresh strategy, each with its own defaults."""
    if arm == REFERENCE:
        import clma

        strategy: FedAvg = clma.CLMA()
    elif arm == BEST_START:
        settings = StrategySettings(
            name=OURS[arm],
            min_nodes=MOST_NODES,
            candidates=MOST_CANDIDATES,
            best_start=True,
            chance_loss=math.log(CLASSES),
        )
        strategy = make_strategy(settings, flagged=flagged)
    else:
        strategy = make_strategy(StrategySettings(name=OURS[arm], min_nodes=MOST_NODES))
    strategy.fraction_train = participation
    return strategy


def run_arm(arm: str, fleet: CifarFleet, results: Path, told: Callable[[str], None] = print) -> list[RoundAccount]:
    """All rounds of one arm, each written to ``results`` as it ends.

    A run that was cut off is begun anew: what was trained is found in the cache.
    """
    prepare_process()
    initial = fleet.bundle.initial_weights()

    def held(client: int) -> Weights:
        assert isinstance(strategy, CLMA)
        cohort = strategy.registry.cohort_of(1 + client)
        return as_float32(strategy.registry.params(cohort) or initial)

    monitors = Monitors(fleet, held)
    strategy = strategy_of(arm, fleet.setting.participation, monitors)
    rounds: list[RoundAccount] = []

    def ended(account: RoundAccount) -> None:
        if isinstance(strategy, CLMA):
            account.facts = {m.client - 1: m.facts for m in strategy.registry.round_moves if m.facts is not None}
        if arm == BEST_START:
            account.flagged = sorted(node - 1 for node in monitors(account.number))
        rounds.append(account)
        path = results / f"{fleet.setting.name}.{fleet.seed}.{arm}.json".replace(" ", "-")
        path.write_text(json.dumps([asdict(one) for one in rounds]), encoding="utf-8")
        told(f"  {fleet.setting.name}, seed {fleet.seed}, {arm}: {line(account)}")

    arrays = ArrayRecord({name: Array(tensor) for name, tensor in initial.items()})
    random.seed(fleet.seed)  # flwr draws the participants from it: the same in every arm
    clients = clients_of(fleet, tell_reliability=arm == RELIABLE)
    strategy.start(grid=CountingGrid(clients, ended), initial_arrays=arrays, num_rounds=fleet.setting.rounds)
    return rounds


def line(account: RoundAccount) -> str:
    """A round in a line."""
    groups: dict[int, list[int]] = {}
    for client, cohort in account.cohorts.items():
        groups.setdefault(cohort, []).append(client)
    shown = " ".join("".join(map(str, members)) for members in groups.values())
    still = sum(account.accuracy[c] for c in (8, 9)) / 2
    moved = sum(a for c, a in account.accuracy.items() if c < 8) / 8
    flagged = "".join(map(str, account.flagged)) or "none"
    return f"round {account.number}: stationary {still:.3f}, drifted {moved:.3f}, flags {flagged}, cohorts {shown}"
