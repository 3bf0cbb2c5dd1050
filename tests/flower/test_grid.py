import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp.strategy import FedAdam, FedAvg

from edge_agent.errors import ConfigError, DataError, TransientError
from edge_agent.wire.messages import Evaluate, State, Train
from edge_agent.wire.messages.state import ClockTrust, TrustedVersions
from edge_agent.wire.tensors import Weights, decode_weights
from server_bridge.fleet.transport import Gateway
from server_bridge.flower.grid import MqttGrid
from server_bridge.flower.records import to_record, to_weights
from tests.flower.memory_fleet import BUNDLE, MemoryFleet, MemoryGateway, direction, initial_weights, settings, towards


def _fleet(count: int = 3) -> MemoryFleet:
    return MemoryFleet(
        {f"g{i}": MemoryGateway(towards(direction(1), 0.3, i), examples=100 * i) for i in range(1, count + 1)}
    )


def _message(
    node: int,
    weights: Weights,
    kind: str = MessageType.TRAIN,
    config: dict[str, str] | None = None,
    server_round: int = 1,
) -> Message:
    content = RecordDict(
        {"arrays": to_record(weights), "config": ConfigRecord({"server-round": server_round, **(config or {})})}
    )
    return Message(content, node, kind)


def test_node_ids_are_the_online_gateways() -> None:
    fleet = _fleet()
    fleet.members["g2"].online = False
    assert list(MqttGrid(fleet, settings()).get_node_ids()) == [1, 3]


def test_gateways_known_to_run_another_bundle_are_not_asked() -> None:
    state = State(
        gateway="g2", boot_id="b", agent_version="0.1", bundle="e" * 64, weights="f" * 64, weights_version=1,
        cohort="root", ota_state="committed", trusted=TrustedVersions(), clock=ClockTrust(trusted=True, floor_s=0.0),
        trainable_samples=5, training=False,
    )  # fmt: skip

    class Fleet(MemoryFleet):
        def gateways(self) -> list[Gateway]:
            states = {"g1": state.model_copy(update={"bundle": BUNDLE}), "g2": state, "g3": None}
            return [replace(gateway, state=states[gateway.id]) for gateway in super().gateways()]

    assert list(MqttGrid(Fleet(_fleet().members), settings()).get_node_ids()) == [1, 3]


def test_a_train_message_becomes_a_train_order_and_weights_come_back() -> None:
    fleet, base = _fleet(), initial_weights()
    grid = MqttGrid(fleet, settings())
    (reply,) = grid.send_and_receive([_message(2, base, config={"clma-cohort": "c4", "note": "x"})], timeout=2.0)
    (order,) = fleet.orders
    assert isinstance(order.action, Train)
    assert (order.gateway, order.duration_s, order.action.cohort, order.action.round) == ("g2", 2.0, "c4", 1)
    assert order.action.config == {"server-round": 1, "clma-cohort": "c4", "note": "x"}
    assert all((decode_weights(fleet.blobs[order.action.base.digest])[n] == base[n]).all() for n in base)
    expected = fleet.members["g2"].learn(base, order.action)
    weights = to_weights(reply.content.array_records["arrays"])
    for name in base:
        np.testing.assert_allclose(weights[name] - base[name], expected[name], atol=1e-6)
    assert reply.metadata.src_node_id == 2
    assert reply.metadata.reply_to_message_id == order.command_id
    (result,) = grid.last_exchange
    assert result.base == order.action.base.digest
    assert all((result.base_weights[n] == base[n]).all() for n in base)


def test_scalars_of_the_training_graph_are_ordered_as_set() -> None:
    fleet = _fleet()
    told = replace(settings(), scalars={"momentum": 0.5, "clip_norm": 1.0})
    MqttGrid(fleet, told).send_and_receive([_message(1, initial_weights())], timeout=2.0)
    (order,) = fleet.orders
    assert isinstance(order.action, Train)
    assert order.action.scalars == {"momentum": 0.5, "clip_norm": 1.0}


def test_schedule_and_label_shift_are_ordered_as_set() -> None:
    fleet = _fleet()
    moving = replace(settings(), schedule="fed-ade", learning_rate_min=0.001, label_shift=True)
    for chosen in (settings(), moving):
        list(MqttGrid(fleet, chosen).send_and_receive([_message(1, initial_weights())]))
    plain, fed_ade = (order.action for order in fleet.orders)
    assert isinstance(plain, Train)
    assert isinstance(fed_ade, Train)
    assert (plain.schedule, plain.learning_rate_min, plain.config.get("clma-label-shift")) == ("constant", 0.0, None)
    assert (fed_ade.schedule, fed_ade.learning_rate_min, fed_ade.config["clma-label-shift"]) == ("fed-ade", 0.001, True)


def test_the_same_order_has_the_same_command_id_and_another_has_not() -> None:
    fleet, base = _fleet(), initial_weights()
    for weights in (base, base, initial_weights(1)):
        list(MqttGrid(fleet, settings()).send_and_receive([_message(1, weights)]))
    ids = [order.command_id for order in fleet.orders]
    assert ids[0] == ids[1] != ids[2]
    assert ids[0].startswith("a1-1-g1-train-")
    assert len(fleet.carried_out) == 2


def test_every_gateway_has_its_own_seed_each_round() -> None:
    fleet = _fleet()
    grid = MqttGrid(fleet, settings())
    list(grid.send_and_receive([_message(node, initial_weights()) for node in (1, 2)]))
    list(grid.send_and_receive([_message(1, initial_weights(), server_round=2)]))
    assert len({order.action.seed for order in fleet.orders if isinstance(order.action, Train)}) == 3


def test_an_evaluate_message_becomes_an_evaluate_order() -> None:
    fleet = _fleet()
    fleet.members["g1"].metrics = {"accuracy": 0.5}
    (reply,) = MqttGrid(fleet, settings()).send_and_receive([_message(1, initial_weights(), MessageType.EVALUATE)])
    assert isinstance(fleet.orders[0].action, Evaluate)
    assert dict(reply.content.metric_records["metrics"]) == {"num-examples": 100, "accuracy": 0.5}
    assert not reply.content.array_records


def test_replies_come_in_the_order_of_gateways() -> None:
    grid = MqttGrid(_fleet(), settings())
    replies = grid.send_and_receive([_message(node, initial_weights()) for node in (3, 1, 2)])
    assert [reply.metadata.src_node_id for reply in replies] == [1, 2, 3]


def test_silent_offline_and_unknown_nodes_become_errors_and_the_others_count() -> None:
    fleet = _fleet()
    fleet.members["g1"].silent = True
    fleet.members["g2"].online = False
    grid = MqttGrid(fleet, settings())
    replies = {
        reply.metadata.src_node_id: reply
        for reply in grid.send_and_receive([_message(node, initial_weights()) for node in (1, 2, 3, 99)])
    }
    assert {n: str(r.error.reason).split(":")[0] for n, r in replies.items() if r.has_error()} == {
        1: "timeout",
        2: "offline",
        99: "unknown-node",
    }
    assert replies[3].has_content()
    assert [result.reason for result in grid.last_exchange] == ["timeout", "offline", None]


def test_metrics_that_not_all_have_move_aside() -> None:
    fleet = _fleet(2)
    fleet.members["g1"].metrics = {"odd": 3, "clma-loss": 1.0, "gateway": 1}
    fleet.members["g2"].metrics = {"clma-loss": 2.0}
    first, second = MqttGrid(fleet, settings()).send_and_receive([_message(n, initial_weights()) for n in (1, 2)])
    assert dict(first.content.metric_records["metrics"]) == {"num-examples": 100, "clma-loss": 1.0}
    assert dict(second.content.metric_records["metrics"]) == {"num-examples": 200, "clma-loss": 2.0}
    assert first.content.config_records["reply"]["odd"] == 3
    assert first.content.config_records["reply"]["gateway"] == "g1"


def test_weights_that_do_not_fit_the_bundle_are_not_sent() -> None:
    fleet = _fleet()
    with pytest.raises(DataError, match="missing tensor 'b'"):
        MqttGrid(fleet, settings()).send_and_receive([_message(1, {"w": initial_weights()["w"]})])
    bad = initial_weights()
    bad["w"][0, 0] = np.nan
    with pytest.raises(DataError, match="'w' is not finite"):
        MqttGrid(fleet, settings()).send_and_receive([_message(1, bad)])
    assert fleet.orders == []


def test_a_message_without_a_command_is_refused() -> None:
    grid = MqttGrid(_fleet(), settings())
    with pytest.raises(ConfigError, match="query"):
        grid.send_and_receive([_message(1, initial_weights(), MessageType.QUERY)])
    with pytest.raises(ConfigError, match="0 array records"):
        grid.send_and_receive([Message(RecordDict({}), 1, MessageType.TRAIN)])


def test_pushed_messages_are_pulled_until_they_are_answered() -> None:
    fleet = _fleet()
    fleet.members["g2"].silent = True
    grid = MqttGrid(fleet, settings())
    content = RecordDict({"arrays": to_record(initial_weights()), "config": ConfigRecord({"server-round": 1})})
    ids = list(grid.push_messages([grid.create_message(content, "train", node, "1") for node in (1, 2)]))
    assert len(set(ids)) == 2
    assert [reply.metadata.reply_to_message_id for reply in grid.pull_messages(ids)] == [ids[0]]
    assert list(grid.pull_messages(ids)) == []
    fleet.members["g2"].silent = False
    assert [reply.metadata.reply_to_message_id for reply in grid.pull_messages(ids)] == [ids[1]]
    assert list(grid.pull_messages(ids)) == []


class _Clock:
    """Each look moves the clock on, as flwr's sleeps would."""

    def __init__(self, step_s: float) -> None:
        self.now_s, self.step_s = 0.0, step_s

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


def test_a_strategy_that_waits_for_gateways_does_not_wait_for_ever() -> None:
    grid = MqttGrid(_fleet(1), replace(settings(), node_wait_s=10.0), monotonic=_Clock(1.0))
    with pytest.raises(TransientError, match="waited 11 s for more than 1 gateways"):
        [grid.get_node_ids() for _ in range(100)]


def test_calls_far_apart_are_no_wait() -> None:
    grid = MqttGrid(_fleet(1), replace(settings(), node_wait_s=10.0), monotonic=_Clock(8.0))
    for _ in range(100):
        assert list(grid.get_node_ids()) == [1]


def test_a_gateway_that_leaves_between_counting_and_sampling_does_not_hold_the_round() -> None:
    fleet = _fleet(3)
    grid = MqttGrid(fleet, settings(), monotonic=_Clock(0.01))
    assert len(list(grid.get_node_ids())) == 3
    fleet.members["g1"].online = False
    assert len(list(grid.get_node_ids())) == 3


@pytest.mark.parametrize("strategy", [FedAvg(), FedAdam()])
@pytest.mark.parametrize("coding", ["fp32", "fp16", "int8"])
def test_flowers_own_strategies_run_unmodified(strategy: FedAvg, coding: str) -> None:
    fleet = _fleet(4)
    fleet.members["g4"].silent = True
    fleet.members["g1"].metrics = {"accuracy": 0.25}
    fleet.members["g2"].metrics = {"accuracy": 0.75, "odd": 1}
    fleet.members["g3"].metrics = {"accuracy": 0.5}
    grid = MqttGrid(fleet, replace(settings(), coding=coding))  # type: ignore[arg-type]  # parametrised literal
    result = strategy.start(grid, to_record(initial_weights()), num_rounds=2)
    assert set(result.train_metrics_clientapp) == {1, 2}
    assert result.evaluate_metrics_clientapp[2]["accuracy"] == pytest.approx((0.25 + 2 * 0.75 + 3 * 0.5) / 6)
    weights = to_weights(result.arrays)
    assert all(np.isfinite(tensor).all() for tensor in weights.values())
    assert any((weights[name] != initial_weights()[name]).any() for name in weights)


def test_fedavg_gives_the_example_weighted_mean() -> None:
    fleet, base = _fleet(3), initial_weights()
    strategy = FedAvg(fraction_evaluate=0.0)
    result = strategy.start(MqttGrid(fleet, settings()), to_record(base), num_rounds=1)
    deltas = [
        fleet.members[order.gateway].learn(base, order.action)
        for order in fleet.orders
        if isinstance(order.action, Train)
    ]
    for name in base:
        expected = base[name] + np.average([delta[name] for delta in deltas], axis=0, weights=[100, 200, 300])
        np.testing.assert_allclose(result.arrays[name].numpy(), expected, atol=1e-5)


def test_nobody_answering_is_no_exception() -> None:
    fleet = _fleet(2)
    for member in fleet.members.values():
        member.silent = True
    result = FedAvg().start(MqttGrid(fleet, settings()), to_record(initial_weights()), num_rounds=1)
    assert result.arrays == ArrayRecord()


def test_a_reply_that_was_read_and_dropped_is_held_by_nobody() -> None:
    grid = MqttGrid(_fleet(), settings())
    replies = iter(grid.send_and_receive([_message(node, initial_weights()) for node in (1, 2, 3)]))
    first = weakref.ref(next(replies).content.array_records["arrays"])
    gc.collect()
    assert first() is None
    assert all(result.ok and result.weights is None for result in grid.last_exchange)
