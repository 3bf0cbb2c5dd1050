"""What every FleetTransport must do; a test module for one fleet subclasses this.

The subclass gives the fixture ``fleet``: a :class:`ContractFleet` with three online gateways
``g1 g2 g3`` that carry out train and evaluate commands for :data:`~tests.flower.memory_fleet.SPECS`
and one registered gateway ``g4`` that is offline.
"""

import time
from typing import Protocol

import pytest

from edge_agent.wire.blobs import BlobReference, make_reference, sha256_hex
from edge_agent.wire.messages import Evaluate, EvaluateResult, Train, TrainResult
from edge_agent.wire.tensors import encode_weights
from edge_agent.wire.updates import decode_update
from server_bridge.fleet.transport import FleetTransport, Order
from tests.flower.memory_fleet import BUNDLE, SPECS, initial_weights


class ContractFleet(Protocol):
    """A transport, and the strings that the contract pulls."""

    transport: FleetTransport
    timeout_s: float

    def mute(self, gateway: str) -> None:
        """The gateway stays online and answers nothing from here on."""

    def unmute(self, gateway: str) -> None:
        """The gateway carries on; a command that it has got it carries out or has carried out."""

    def times_trained(self, gateway: str) -> int:
        """How many train commands the gateway has carried out."""


def _never() -> bool:
    return False


def _train(gateway: str, base: BlobReference, command: str, server_round: int = 1) -> Order:
    action = Train(
        adaptation="contract",
        round=server_round,
        bundle=BUNDLE,
        base=base,
        cohort="root",
        training_graph="adam",
        learning_rate=0.01,
        epochs=1,
        batch_size=16,
        min_samples=1,
        max_samples=1000,
        seed=1,
        coding="fp32",
        config={"server-round": server_round},
    )
    return Order(gateway, f"{command}-{gateway}", action, 30.0)


class TransportContract:
    """The suite."""

    @pytest.fixture
    def base(self, fleet: ContractFleet) -> BlobReference:
        return fleet.transport.publish_blob(encode_weights(initial_weights()))

    def test_gateways_come_in_the_order_of_ids_with_stable_node_ids(self, fleet: ContractFleet) -> None:
        first, second = fleet.transport.gateways(), fleet.transport.gateways()
        assert [gateway.id for gateway in first] == ["g1", "g2", "g3", "g4"]
        assert [gateway.online for gateway in first] == [True, True, True, False]
        assert [gateway.node_id for gateway in first] == [gateway.node_id for gateway in second]
        assert len({gateway.node_id for gateway in first}) == 4
        assert all(0 < gateway.node_id < 2**63 for gateway in first)

    def test_a_blob_is_named_by_its_content_and_published_again_for_nothing(self, fleet: ContractFleet) -> None:
        data = b"x" * 100_000
        reference = fleet.transport.publish_blob(data)
        assert reference == fleet.transport.publish_blob(data)
        assert reference.digest == make_reference(data)[0].digest
        assert reference.length == len(data)

    def test_outcomes_come_in_the_order_of_orders(self, fleet: ContractFleet, base: BlobReference) -> None:
        orders = [_train(gateway, base, "order") for gateway in ("g3", "g1", "g2")]
        outcomes = fleet.transport.exchange(orders, timeout_s=fleet.timeout_s, cancelled=_never)
        assert [outcome.gateway for outcome in outcomes] == ["g3", "g1", "g2"]
        assert [outcome.command_id for outcome in outcomes] == [order.command_id for order in orders]
        assert [outcome.failure for outcome in outcomes] == [None] * 3

    def test_a_trained_update_is_whole_and_fits_its_manifest(self, fleet: ContractFleet, base: BlobReference) -> None:
        order = _train("g1", base, "whole")
        (outcome,) = fleet.transport.exchange([order], timeout_s=fleet.timeout_s, cancelled=_never)
        assert outcome.failure is None
        assert outcome.reply is not None
        assert isinstance(outcome.reply.result, TrainResult)
        assert outcome.update is not None
        assert sha256_hex(outcome.update) == outcome.reply.result.update.digest
        assert outcome.reply.result.update.base == base.digest
        assert outcome.reply.result.round == 1
        assert set(decode_update(outcome.update, "fp32", SPECS)) == {spec.name for spec in SPECS}

    def test_an_evaluation_names_the_weights(self, fleet: ContractFleet, base: BlobReference) -> None:
        order = Order("g1", "evaluate-g1", Evaluate(bundle=BUNDLE, weights=base), 30.0)
        (outcome,) = fleet.transport.exchange([order], timeout_s=fleet.timeout_s, cancelled=_never)
        assert outcome.failure is None
        assert outcome.reply is not None
        assert isinstance(outcome.reply.result, EvaluateResult)
        assert outcome.reply.result.weights == base.digest
        assert outcome.update is None

    def test_the_same_command_is_carried_out_once(self, fleet: ContractFleet, base: BlobReference) -> None:
        order = _train("g2", base, "once")
        (first,) = fleet.transport.exchange([order], timeout_s=fleet.timeout_s, cancelled=_never)
        (second,) = fleet.transport.exchange([order], timeout_s=fleet.timeout_s, cancelled=_never)
        assert first.failure is None
        assert second.failure is None
        assert second.update == first.update
        assert fleet.times_trained("g2") == 1

    def test_the_deadline_brings_what_has_come(self, fleet: ContractFleet, base: BlobReference) -> None:
        fleet.mute("g2")
        orders = [_train(gateway, base, "deadline") for gateway in ("g1", "g2", "g3")]
        began = time.monotonic()
        outcomes = fleet.transport.exchange(orders, timeout_s=fleet.timeout_s, cancelled=_never)
        assert time.monotonic() - began < fleet.timeout_s + 20
        assert [outcome.failure for outcome in outcomes] == [None, "timeout", None]
        assert outcomes[1].reply is None
        assert outcomes[1].update is None

    def test_what_came_late_is_had_by_asking_for_the_same_again(
        self, fleet: ContractFleet, base: BlobReference
    ) -> None:
        fleet.mute("g2")
        order = _train("g2", base, "late")
        (late,) = fleet.transport.exchange([order], timeout_s=min(2.0, fleet.timeout_s), cancelled=_never)
        assert late.failure == "timeout"
        fleet.unmute("g2")
        (again,) = fleet.transport.exchange([order], timeout_s=fleet.timeout_s, cancelled=_never)
        assert again.failure is None
        assert fleet.times_trained("g2") == 1

    def test_a_late_reply_is_not_taken_for_another_command(self, fleet: ContractFleet, base: BlobReference) -> None:
        fleet.mute("g2")
        fleet.transport.exchange([_train("g2", base, "r1")], timeout_s=min(2.0, fleet.timeout_s), cancelled=_never)
        fleet.unmute("g2")
        order = _train("g2", base, "r2", server_round=2)
        (outcome,) = fleet.transport.exchange([order], timeout_s=fleet.timeout_s, cancelled=_never)
        assert outcome.command_id == order.command_id
        assert outcome.failure is None
        assert outcome.reply is not None
        assert outcome.reply.command_id == order.command_id
        assert isinstance(outcome.reply.result, TrainResult)
        assert outcome.reply.result.round == 2

    def test_an_offline_gateway_fails_by_the_deadline(self, fleet: ContractFleet, base: BlobReference) -> None:
        orders = [_train("g1", base, "away"), _train("g4", base, "away")]
        outcomes = fleet.transport.exchange(orders, timeout_s=fleet.timeout_s, cancelled=_never)
        assert outcomes[0].failure is None
        assert outcomes[1].failure in ("offline", "timeout")

    def test_a_cancelled_exchange_ends_soon_with_an_outcome_an_order(
        self, fleet: ContractFleet, base: BlobReference
    ) -> None:
        fleet.mute("g1")
        began = time.monotonic()
        outcomes = fleet.transport.exchange([_train("g1", base, "cancelled")], timeout_s=60.0, cancelled=lambda: True)
        assert time.monotonic() - began < 30
        assert len(outcomes) == 1
        assert outcomes[0].failure is not None

    def test_no_orders_no_outcomes(self, fleet: ContractFleet) -> None:
        assert list(fleet.transport.exchange([], timeout_s=fleet.timeout_s, cancelled=_never)) == []
