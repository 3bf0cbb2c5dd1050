import numpy as np
import pytest
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg

from edge_agent.errors import DataError, TransientError
from edge_agent.wire.tensors import Weights
from server_bridge.flower.clma import CLMA
from server_bridge.flower.engine import RoundOutcome, run_round
from server_bridge.flower.grid import MqttGrid
from server_bridge.flower.state import decode_state, encode_state
from server_bridge.flower.strategies import (
    StrategyName,
    StrategySettings,
    export_strategy,
    import_strategy,
    make_strategy,
)
from tests.flower.memory_fleet import MemoryFleet, MemoryGateway, direction, initial_weights, settings, towards

A, B, CALM = direction(1), direction(2), direction(3, 0.1)
FLAGGED = {1: set(range(1, 9))}


def _fleet() -> MemoryFleet:
    ways = [A] * 4 + [B] * 4 + [CALM] * 2
    return MemoryFleet({f"g{i}": MemoryGateway(towards(way, 0.5, i), examples=50 + i) for i, way in enumerate(ways)})


def _strategy(name: StrategyName = "clma") -> FedAvg:
    return make_strategy(StrategySettings(name=name), flagged=lambda number: FLAGGED.get(number, set()))


def test_a_round_says_everything_by_gateway() -> None:
    fleet = _fleet()
    fleet.members["g7"].silent = True
    outcome = run_round(_strategy(), MqttGrid(fleet, settings()), initial_weights(), 1, {"note": "x"}, 1.0)
    cohorts = {f"g{i}": "c1" if i < 4 else "c2" for i in range(7)}
    assert outcome.assignments == {**cohorts, "g7": "root", "g8": "root", "g9": "root"}
    assert outcome.regrouped == set(cohorts)
    assert set(outcome.cohort_weights) == outcome.changed == {"root", "c1", "c2"}
    assert outcome.failed == {"g7": "timeout: "}
    assert len(outcome.ok) == 9
    assert outcome.metrics["clma-num-drifted"] == 7
    assert len(outcome.results) == 10
    assert all(tensor.dtype == np.float32 for w in outcome.cohort_weights.values() for tensor in w.values())
    assert all((outcome.arrays[n] == t).all() for n, t in outcome.cohort_weights["root"].items())


@pytest.mark.parametrize("name", ["fedavg", "fedadam"])
def test_a_strategy_without_cohorts_serves_the_root(name: StrategyName) -> None:
    outcome = run_round(_strategy(name), MqttGrid(_fleet(), settings()), initial_weights(), 1, {}, 1.0)
    assert set(outcome.cohort_weights) == {"root"}
    assert set(outcome.assignments.values()) == {"root"}
    assert outcome.changed == {"root"}
    assert outcome.regrouped == frozenset()
    assert outcome.arrays["w"].dtype == np.float32


def test_nobody_answering_passes_the_weights_on() -> None:
    fleet = _fleet()
    for member in fleet.members.values():
        member.silent = True
    outcome = run_round(_strategy(), MqttGrid(fleet, settings()), initial_weights(), 1, {}, 1.0)
    assert outcome.metrics == {}
    assert outcome.ok == ()
    assert all((outcome.arrays[n] == t).all() for n, t in initial_weights().items())
    assert set(outcome.assignments.values()) == {"root"}


def test_nobody_online_is_for_another_time() -> None:
    fleet = _fleet()
    for member in fleet.members.values():
        member.online = False
    with pytest.raises(TransientError, match="0 gateways are online"):
        run_round(_strategy(), MqttGrid(fleet, settings()), initial_weights(), 1, {}, 1.0)


class _Broken(FedAvg):
    def aggregate_train(self, server_round: int, replies: object) -> tuple[ArrayRecord | None, MetricRecord | None]:
        raise ZeroDivisionError("float division by zero")


def test_a_strategy_that_breaks_is_named() -> None:
    with pytest.raises(DataError, match="_Broken cannot aggregate round 4"):
        run_round(_Broken(), MqttGrid(_fleet(), settings()), initial_weights(), 4, {}, 1.0)


def test_a_metrics_function_that_breaks_is_named() -> None:
    def broken(contents: list[RecordDict], key: str) -> MetricRecord:
        raise KeyError("accuracy")

    strategy = CLMA(train_metrics_aggr_fn=broken)
    with pytest.raises(DataError, match="CLMA cannot aggregate round 1"):
        run_round(strategy, MqttGrid(_fleet(), settings()), initial_weights(), 1, {}, 1.0)


class _Killed(BaseException):
    """The bridge's process ends."""


def _rounds(strategy: FedAvg, fleet: MemoryFleet, arrays: Weights, numbers: range) -> list[RoundOutcome]:
    outcomes = []
    for number in numbers:
        outcomes.append(run_round(strategy, MqttGrid(fleet, settings()), arrays, number, {}, 1.0))
        arrays = outcomes[-1].arrays
    return outcomes


@pytest.mark.parametrize("name", ["clma", "fedadam", "fedavg"])
@pytest.mark.parametrize("killed_in", [1, 2, 3])
def test_a_bridge_killed_in_any_round_ends_where_it_would_have(name: StrategyName, killed_in: int) -> None:
    whole = _rounds(_strategy(name), _fleet(), initial_weights(), range(1, 4))

    fleet, strategy = _fleet(), _strategy(name)
    before = _rounds(strategy, fleet, initial_weights(), range(1, killed_in))
    stored = encode_state(export_strategy(strategy))
    arrays = before[-1].arrays if before else initial_weights()

    class KillingGrid(MqttGrid):
        def send_and_receive(self, messages: object, *, timeout: float | None = None) -> list[Message]:
            super().send_and_receive(messages, timeout=timeout)  # type: ignore[arg-type]  # passed through
            raise _Killed

    with pytest.raises(_Killed):
        run_round(strategy, KillingGrid(fleet, settings()), arrays, killed_in, {}, 1.0)

    fresh = _strategy(name)
    import_strategy(fresh, decode_state(stored))
    after = _rounds(fresh, fleet, arrays, range(killed_in, 4))
    assert len(fleet.carried_out) == 30  # nobody trained a round twice
    assert after[-1].assignments == whole[-1].assignments
    for cohort, weights in whole[-1].cohort_weights.items():
        for tensor in weights:
            assert (after[-1].cohort_weights[cohort][tensor] == weights[tensor]).all()
