"""Screening: one bad gateway is refused by name and the others' round goes on."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import ConfigRecord

from edge_agent.wire.messages import EvaluateResult, Reply, Train, TrainFindings, TrainResult
from edge_agent.wire.tensors import Weights
from server_bridge.fleet.transport import Order, Outcome
from server_bridge.flower.engine import run_round
from server_bridge.flower.grid import MqttGrid
from server_bridge.flower.records import to_record
from server_bridge.flower.replies import NodeResult
from server_bridge.flower.strategies import StrategyName, StrategySettings, make_strategy
from server_bridge.store.participation import left_out_words
from tests.flower.memory_fleet import (
    MemoryFleet,
    MemoryGateway,
    Tamper,
    direction,
    initial_weights,
    settings,
    towards,
    with_update,
)


def _fleet(tamper: Tamper | None, **bad: float | list[int]) -> MemoryFleet:
    members = {f"g{i}": MemoryGateway(towards(direction(1), 0.3, i)) for i in range(4)}
    members["g3"].tamper = tamper
    members["g3"].metrics = dict(bad)
    return MemoryFleet(members)


def _round(fleet: MemoryFleet, name: StrategyName = "fedavg") -> tuple[dict[str, str], tuple[str, ...], Weights]:
    grid = MqttGrid(fleet, settings())
    outcome = run_round(make_strategy(StrategySettings(name=name)), grid, initial_weights(), 1, {}, 1.0)
    return outcome.failed, outcome.ok, outcome.arrays


def _scaled(factor: float) -> Callable[[Weights], Weights]:
    return lambda delta: {name: tensor * np.float32(factor) for name, tensor in delta.items()}


def _with_nan(delta: Weights) -> Weights:
    delta["w"][0, 0] = np.nan
    return delta


def _result(change: dict[str, object]) -> Tamper:
    """Replaces fields of the train result."""

    def tamper(order: Order, outcome: Outcome) -> Outcome:
        assert outcome.reply is not None
        assert isinstance(outcome.reply.result, TrainResult)
        result = outcome.reply.result.model_copy(update=change)
        return replace(outcome, reply=outcome.reply.model_copy(update={"result": result}))

    return tamper


def _manifest(change: dict[str, object]) -> Tamper:
    def tamper(order: Order, outcome: Outcome) -> Outcome:
        assert outcome.reply is not None
        assert isinstance(outcome.reply.result, TrainResult)
        return _result({"update": outcome.reply.result.update.model_copy(update=change)})(order, outcome)

    return tamper


def _other_kind(order: Order, outcome: Outcome) -> Outcome:
    assert outcome.reply is not None
    result = EvaluateResult(weights="a" * 64, metrics={"num-examples": 1})
    return replace(outcome, reply=outcome.reply.model_copy(update={"result": result}))


def _status(order: Order, outcome: Outcome) -> Outcome:
    reply = Reply(gateway=order.gateway, boot_id="b", command_id=order.command_id, status="accepted")
    return replace(outcome, reply=reply)


HOSTILE: list[tuple[str, Tamper, str]] = [
    ("nan", with_update(_with_nan), "bad-tensors: tensor 'w' is not finite"),
    ("wrong shape", with_update(lambda d: {**d, "w": d["w"].T}), "bad-tensors: tensor 'w' has shape [4, 8]"),
    ("extra", with_update(lambda d: {**d, "x": d["b"]}), "bad-tensors: extra tensor 'x'"),
    ("missing", with_update(lambda d: {"w": d["w"]}), "bad-tensors: missing tensor 'b'"),
    ("1e6 times the norm", with_update(_scaled(1e6)), "bad-norm: update length"),
    ("101 times the norm", with_update(_scaled(150)), "bad-norm: update length"),
    ("overflow", with_update(lambda d: {n: np.full_like(t, 3.4e38) for n, t in d.items()}), "bad-norm"),
    ("zero", with_update(_scaled(0)), "zero-update: every weight is as it was sent"),
    ("stale round", _result({"round": 7}), "stale-round: the result is of round 7"),
    ("stale cohort", _result({"cohort": "c9"}), "stale-cohort: the result is of cohort 'c9'"),
    ("stale base", _manifest({"base": "c" * 64}), "stale-base: the update is from cccc"),
    ("other coding", _manifest({"coding": "int8"}), "bad-manifest: the update is coded int8"),
    ("other bytes", lambda o, x: replace(x, update=b"junk"), "bad-update: the update's digest"),
    ("no bytes", lambda o, x: replace(x, update=None), "bad-update: the update did not come"),
    ("other kind", _other_kind, "bad-reply: a evaluate result answers a train command"),
    ("no result", _status, "bad-reply: no result"),
    ("no reply", lambda o, x: replace(x, reply=None), "bad-reply: no result"),
    ("transport's reason", lambda o, x: replace(x, failure="refused", detail="off"), "refused: off"),
]


@pytest.mark.parametrize("name", ["fedavg", "fedadam", "clma"])
@pytest.mark.parametrize(("tamper", "reason"), [case[1:] for case in HOSTILE], ids=[case[0] for case in HOSTILE])
def test_a_bad_update_is_refused_by_name_and_the_round_completes_without_it(
    tamper: Tamper, reason: str, name: StrategyName
) -> None:
    failed, ok, arrays = _round(_fleet(tamper), name)
    assert ok == ("g0", "g1", "g2")
    assert list(failed) == ["g3"]
    assert failed["g3"].startswith(reason)
    without = _fleet(None)
    without.members["g3"].silent = True
    expected = _round(without, name)[2]
    assert all((arrays[tensor] == expected[tensor]).all() for tensor in expected)


@pytest.mark.parametrize(("copier", "copied"), [("g3", "g1"), ("g0", "g2")])
def test_a_copy_of_an_earlier_update_is_refused_whatever_its_sender_is_called(copier: str, copied: str) -> None:
    fleet = _fleet(None)
    fleet.members[copier].learn = fleet.members[copied].learn
    fleet.members[copier].examples = 1000
    fleet.members[copier].tamper = lambda order, outcome: replace(outcome, arrived_s=2.0)
    failed, ok, arrays = _round(fleet)
    assert ok == tuple(sorted(fleet.members.keys() - {copier}))
    assert failed == {copier: f"copied-update: the same as that of {copied}, to the last bit"}
    without = _fleet(None)
    without.members[copier].silent = True
    assert all((arrays[name] == tensor).all() for name, tensor in _round(without)[2].items())


@pytest.mark.parametrize("count", [0, -3, 1_001, 0.0])
def test_unusable_example_counts_are_refused(count: float) -> None:
    failed, ok, _ = _round(_fleet(None, **{"num-examples": count}))
    assert ok == ("g0", "g1", "g2")
    assert failed["g3"].startswith("bad-examples: num-examples")


def test_everybody_with_zero_examples_leaves_the_weights_as_they_are() -> None:
    fleet = _fleet(None)
    for member in fleet.members.values():
        member.examples = 0
    failed, ok, arrays = _round(fleet)
    assert ok == ()
    assert len(failed) == 4
    assert all((arrays[name] == tensor).all() for name, tensor in initial_weights().items())


def test_an_evaluation_of_other_weights_or_of_nothing_is_refused() -> None:
    grid = MqttGrid(_fleet(None, **{"num-examples": 0}), settings())
    strategy = make_strategy(StrategySettings(name="fedavg"))
    messages = strategy.configure_evaluate(1, to_record(initial_weights()), ConfigRecord(), grid)
    replies = list(grid.send_and_receive(messages))
    metrics = strategy.aggregate_evaluate(1, replies)
    assert metrics is not None
    results: list[NodeResult] = grid.last_exchange
    assert [result.reason for result in results] == [None, None, None, "bad-examples"]


def test_a_gateway_whose_update_made_things_worse_sits_the_round_out_and_is_named_with_its_figures() -> None:
    def worse(order: Order, outcome: Outcome) -> Outcome:
        assert isinstance(order.action, Train)
        found = TrainFindings(round=1, cohort="root", metrics={"num-examples": 50, "proof-loss-after": 2.0})
        reply = Reply(
            gateway=order.gateway,
            boot_id="boot",
            command_id=order.command_id,
            status="error",
            reason="made-worse",
            detail="the loss rose",
            result=found,
        )
        return Outcome(order.gateway, order.command_id, reply, None, "made-worse", "the loss rose")

    fleet = _fleet(worse)
    grid = MqttGrid(fleet, settings())
    outcome = run_round(make_strategy(StrategySettings(name="fedavg")), grid, initial_weights(), 1, {}, 1.0)
    assert outcome.failed == {"g3": "made-worse: the loss rose"}
    assert outcome.ok == ("g0", "g1", "g2")
    assert [result.metrics["proof-loss-after"] for result in outcome.results if not result.ok] == [2.0]
    assert left_out_words(outcome.failed, {}) == "g3 (made-worse) left out"
    orders = [order.action for order in fleet.orders if isinstance(order.action, Train)]
    assert not any(action.send_worse for action in orders)


def test_honest_updates_of_very_different_lengths_pass() -> None:
    failed, ok, _ = _round(_fleet(with_update(_scaled(30))))
    assert failed == {}
    assert len(ok) == 4
