from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Error, Message, MetricRecord, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from server_bridge.flower.clma import CLMA
from server_bridge.flower.engine import run_round
from server_bridge.flower.grid import MqttGrid
from server_bridge.flower.records import set_message_id, to_record, to_tensors
from server_bridge.flower.state import encode_state
from server_bridge.flower.strategies import StrategyName, StrategySettings, make_strategy
from server_bridge.flower.updates import ClientUpdate, read_update
from tests.flower.by_hand import CALM, A, Rounds, close, flags, fleet_of, grid_of, options
from tests.flower.memory_fleet import MemoryFleet, MemoryGateway, initial_weights, towards
from tests.flower.memory_fleet import settings as grid_settings


def test_nobody_replied() -> None:
    clients = fleet_of(a=[1, 2], c=[3])
    for client in clients.values():
        client.away = True
    rounds = Rounds(CLMA(flagged=flags(r1=[1, 2]), **options()), clients).run()
    assert (rounds.arrays, rounds.metrics) == (None, {})
    assert rounds.groups == {"root": [1, 2, 3]}


def test_one_flagged_client_replied_and_the_silent_one_stays() -> None:
    clients = fleet_of(a=[1, 2], c=[3])
    clients[2].away = clients[3].away = True
    rounds = Rounds(CLMA(flagged=flags(r1=[1, 2]), **options()), clients).run()
    assert rounds.groups == {"root": [2, 3], "c1": [1]}
    close(rounds.strategy.registry.params("root"), initial_weights())


SPOILT: dict[str, Callable[[dict[str, NDArray[Any]]], dict[str, NDArray[Any]]]] = {
    "nan": lambda m: {**m, "w": m["w"] * np.float32(np.nan)},
    "shape": lambda m: {**m, "w": m["w"][:2]},
    "extra": lambda m: {**m, "x": m["b"]},
    "missing": lambda m: {"w": m["w"]},
    "dtype": lambda m: {**m, "b": m["b"].astype(np.int64)},
}
BEYOND_FLOAT32 = 1e200


@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT)
@pytest.mark.parametrize("flagged", [[], [1, 2], [2]])
def test_a_reply_that_cannot_be_averaged_is_left_out_by_name(
    spoil: Callable[[dict[str, NDArray[Any]]], dict[str, NDArray[Any]]], flagged: list[int]
) -> None:
    clients = fleet_of(a=[1, 2], c=[3])
    clients[2].spoil = spoil
    rounds = Rounds(CLMA(flagged=flags(r1=flagged), **options()), clients).run()
    assert rounds.strategy.refused[2].reason == "bad-tensors"
    assert rounds.strategy.registry.cohort_of(2) == "root"
    close(rounds.strategy.registry.params("root"), rounds.mean([3] if 1 in flagged else [1, 3]))


@pytest.mark.parametrize("flagged", [[], [1, 2], [2]])
def test_weights_that_the_base_cannot_hold_are_left_out(flagged: list[int]) -> None:
    clients = fleet_of(a=[1, 2], c=[3])
    clients[2].spoil = lambda m: {**m, "w": np.full(m["w"].shape, BEYOND_FLOAT32)}
    rounds = Rounds(CLMA(flagged=flags(r1=flagged), **options()), clients).run()
    assert rounds.strategy.refused[2].reason == "bad-norm"
    close(rounds.strategy.registry.params("root"), rounds.mean([3] if 1 in flagged else [1, 3]))


@pytest.mark.parametrize("name", ["clma", "clma-paper"])
@pytest.mark.parametrize("flagged", [[], [1, 2, 3]])
def test_weights_whose_squares_leave_float64_are_left_out(name: StrategyName, flagged: list[int]) -> None:
    strategy = make_strategy(StrategySettings(name=name), flagged=lambda _: set(flagged))
    base = {"w": np.zeros(64)}
    grid = grid_of(fleet_of(c=[1, 2, 3, 4]))
    replies = []
    for message in strategy.configure_train(1, to_record(base), ConfigRecord(), grid):
        node = message.metadata.dst_node_id
        set_message_id(message, str(node))
        trained = np.random.default_rng(node).normal(size=64) if node != 2 else np.full(64, -BEYOND_FLOAT32)
        metrics = MetricRecord({"num-examples": 10, "clma-loss": 0.5})
        replies.append(Message(RecordDict({"a": to_record({"w": trained}), "m": metrics}), reply_to=message))
    arrays, _ = strategy.aggregate_train(1, replies)
    assert arrays is not None
    assert np.abs(to_tensors(arrays)["w"]).max() < 10.0
    assert isinstance(strategy, CLMA)
    assert strategy.refused[2].reason == "bad-norm"


@pytest.mark.parametrize("count", [0, -1, float("nan"), float("inf"), [3], 1.7e308])
def test_a_reply_without_examples_is_left_out(count: Any) -> None:
    clients = fleet_of(a=[1, 2], c=[3])
    clients[2].metrics["num-examples"] = count
    rounds = Rounds(CLMA(flagged=flags(r1=[2]), **options()), clients).run()
    assert rounds.strategy.refused[2].reason == "bad-examples"
    close(rounds.strategy.registry.params("root"), rounds.mean([1, 3]))


def test_losses_that_are_no_numbers_and_absent_metrics_do_no_harm() -> None:
    clients = fleet_of(a=[1], c=[2, 3])
    clients[1].metrics["clma-loss"] = float("nan")
    clients[2].metrics = {"num-examples": 10}
    rounds = Rounds(CLMA(loss_gamma=0.1, **options()), clients)
    for _ in range(2):
        assert rounds.run().groups == {"root": [1, 2, 3]}


@pytest.mark.parametrize("loss", [1e308, -1e308])
def test_a_loss_that_no_sum_can_hold_is_none(loss: float) -> None:
    clients = fleet_of(a=[1], c=[2, 3])
    clients[2].metrics["clma-loss"] = loss
    strategy = CLMA(flagged=flags(r1=[1]), loss_gamma=0.1, **options())
    Rounds(strategy, clients).run()
    assert strategy.export_state().document["known"]["levels"] == [["root", 0.5]]
    encode_state(strategy.export_state())


@pytest.mark.parametrize(("told", "read"), [(1e308, 1.0), (-7.0, -1.0), (0.3, 0.3), (float("nan"), None)])
def test_a_cosine_of_halves_is_one(told: float, read: float | None) -> None:
    message = Message(RecordDict({}), 2, "train")
    set_message_id(message, "m")
    metrics = MetricRecord({"num-examples": 10, "clma-split-half": told})
    record = to_record(initial_weights())
    reply = Message(RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)
    update = read_update(reply, "root", initial_weights(), "num-examples")
    assert isinstance(update, ClientUpdate)
    assert update.reliability == read


def test_error_replies_are_named() -> None:
    strategy = CLMA(**options())
    rounds = Rounds(strategy, fleet_of(c=[1, 2])).run()
    message = Message(RecordDict({}), 2, "train")
    set_message_id(message, "m")
    assert strategy.aggregate_train(2, [Message(Error(0, "timeout: late"), reply_to=message)]) == (None, None)
    assert strategy.refused[2].detail == "timeout: late"
    assert rounds.groups == {"root": [1, 2]}


@given(st.permutations(range(1, 9)))
@settings(max_examples=15, deadline=None)
def test_the_order_of_replies_changes_nothing(order: list[int]) -> None:
    def run(replies: Sequence[int] | None) -> bytes:
        strategy = CLMA(flagged=flags(r1=range(1, 7)), **options())
        Rounds(strategy, fleet_of(a=[1, 3, 5], b=[2, 4, 6], c=[7, 8])).run(replies)
        return encode_state(strategy.export_state())

    assert run(order) == run(None)


@given(st.floats(0.01, 100.0))
@settings(max_examples=10, deadline=None)
def test_a_common_factor_of_example_counts_changes_nothing(factor: float) -> None:
    clients = fleet_of(a=[1, 3], b=[2, 4], c=[7, 8])
    plain = Rounds(CLMA(flagged=flags(r1=range(1, 5)), **options()), clients).run()
    for client in clients.values():
        client.metrics["num-examples"] = 10 * factor
    scaled = Rounds(CLMA(flagged=flags(r1=range(1, 5)), **options()), clients).run()
    assert scaled.groups == plain.groups
    for cohort in plain.groups:
        close(scaled.strategy.registry.params(cohort), plain.strategy.registry.params(cohort))


def test_metrics_are_averaged_over_what_all_report() -> None:
    clients = fleet_of(c=[1, 2])
    clients[1].metrics = {"num-examples": 10, "accuracy": 0.0, "odd": [1]}
    clients[2].metrics = {"num-examples": 30, "accuracy": 1.0}
    rounds = Rounds(CLMA(**options()), clients).run()
    assert rounds.metrics["accuracy"] == 0.75
    assert "odd" not in rounds.metrics


def test_a_gateway_without_the_metric_does_not_lose_anothers_flag() -> None:
    members = {f"g{i}": MemoryGateway(towards(A if i < 3 else CALM, 0.2, i)) for i in range(1, 5)}
    members["g1"].metrics = members["g2"].metrics = {"clma-drift": 1}
    outcome = run_round(
        CLMA(**options()), MqttGrid(MemoryFleet(members), grid_settings()), initial_weights(), 1, {}, 1.0
    )
    assert outcome.assignments == {"g1": "c1", "g2": "c1", "g3": "root", "g4": "root"}
