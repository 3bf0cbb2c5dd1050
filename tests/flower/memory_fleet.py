"""A fleet in memory: gateways that 'train' by a given rule, and misbehave by a given rule."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from edge_agent.wire.blobs import BlobReference, make_chunk_list, make_reference, sha256_hex
from edge_agent.wire.manifest import TrainableSpec
from edge_agent.wire.messages import Evaluate, EvaluateResult, Reply, Train, TrainResult, UpdateManifest
from edge_agent.wire.tensors import Weights, decode_weights
from edge_agent.wire.updates import Coding, decode_update, encode_update
from server_bridge.fleet.transport import Gateway, Order, Outcome
from server_bridge.flower.settings import GridSettings

BUNDLE = "b" * 64
SPECS = (
    TrainableSpec(name="w", dtype="float32", shape=[8, 4]),
    TrainableSpec(name="b", dtype="float32", shape=[4]),
)
Metrics = dict[str, int | float | list[int] | list[float]]
Learn = Callable[[Weights, Train], Weights]
Judge = Callable[[Weights], Metrics]
Tamper = Callable[[Order, Outcome], Outcome]


def initial_weights(seed: int = 0) -> Weights:
    rng = np.random.default_rng(seed)
    return {spec.name: rng.normal(size=spec.shape).astype(np.float32) for spec in SPECS}


def settings(adaptation: str = "a1", coding: Coding = "fp32") -> GridSettings:
    return GridSettings(
        adaptation=adaptation,
        bundle=BUNDLE,
        specs=SPECS,
        training_graph="adam",
        learning_rate=0.01,
        epochs=1,
        batch_size=16,
        min_samples=10,
        max_samples=1000,
        coding=coding,
        timeout_s=5.0,
    )


def towards(direction: Mapping[str, NDArray[np.float32]], noise: float, seed: int) -> Learn:
    """A gateway whose update is a direction and some noise of its own."""

    def learn(base: Weights, order: Train) -> Weights:
        rng = np.random.default_rng([seed, order.round])
        return {
            name: (direction[name] + noise * rng.normal(size=base[name].shape)).astype(np.float32)
            for name in sorted(base)
        }

    return learn


def direction(seed: int, size: float = 1.0) -> Weights:
    rng = np.random.default_rng([7, seed])
    return {spec.name: (size * rng.normal(size=spec.shape)).astype(np.float32) for spec in SPECS}


@dataclass
class MemoryGateway:
    """One simulated gateway.

    ``learn`` gives the delta from base and order; ``judge`` what an evaluation of weights reports
    beside the example count, ``told`` what a training reply reports of its base; ``tamper`` changes its outcome.
    """

    learn: Learn
    judge: Judge = lambda _: {}
    told: Judge = lambda _: {}
    examples: int = 100
    metrics: Metrics = field(default_factory=dict)
    online: bool = True
    silent: bool = False
    tamper: Tamper | None = None


class MemoryFleet:
    """The transport contract, kept in memory; commands are carried out at most once."""

    def __init__(self, gateways: Mapping[str, MemoryGateway]) -> None:
        self.members = dict(gateways)
        self.blobs: dict[str, bytes] = {}
        self.done: dict[tuple[str, str], Outcome] = {}
        self.carried_out: list[str] = []
        self.orders: list[Order] = []
        self.before_exchange: Callable[[], None] = lambda: None

    def node_id(self, gateway: str) -> int:
        return 1 + sorted(self.members).index(gateway)

    def gateways(self) -> Sequence[Gateway]:
        return [Gateway(name, self.node_id(name), self.members[name].online, None) for name in sorted(self.members)]

    def publish_blob(self, data: bytes) -> BlobReference:
        reference, _ = make_reference(data)
        self.blobs[reference.digest] = data
        return reference

    def exchange(
        self, orders: Sequence[Order], *, timeout_s: float, cancelled: Callable[[], bool]
    ) -> Sequence[Outcome]:
        self.before_exchange()
        self.orders += orders
        return [self._outcome(order) for order in orders]

    def _outcome(self, order: Order) -> Outcome:
        member = self.members[order.gateway]
        if not member.online or member.silent:
            reason = "timeout" if member.online else "offline"
            return Outcome(order.gateway, order.command_id, None, None, reason)
        key = (order.gateway, order.command_id)
        if key not in self.done:
            self.carried_out.append(order.command_id)
            self.done[key] = self._carry_out(member, order)
        outcome = self.done[key]
        return member.tamper(order, outcome) if member.tamper else outcome

    def _carry_out(self, member: MemoryGateway, order: Order) -> Outcome:
        action = order.action
        metrics: Metrics = {"num-examples": member.examples, **member.metrics}
        if isinstance(action, Evaluate):
            metrics |= member.judge(decode_weights(self.blobs[action.weights.digest]))
            return self._ok(order, EvaluateResult(weights=action.weights.digest, metrics=metrics), None)
        base = decode_weights(self.blobs[action.base.digest])
        delta, metrics = member.learn(base, action), metrics | member.told(base)
        return self._ok(order, *train_result(order, encode_update(delta, action.coding), metrics))

    def _ok(self, order: Order, result: TrainResult | EvaluateResult, update: bytes | None) -> Outcome:
        reply = Reply(gateway=order.gateway, boot_id="boot", command_id=order.command_id, status="ok", result=result)
        return Outcome(order.gateway, order.command_id, reply, update, None)


def train_result(order: Order, payload: bytes, metrics: Metrics) -> tuple[TrainResult, bytes]:
    action = order.action
    assert isinstance(action, Train)
    manifest = UpdateManifest(
        coding=action.coding, base=action.base.digest, digest=sha256_hex(payload), chunks=make_chunk_list(payload)
    )
    return TrainResult(round=action.round, cohort=action.cohort, update=manifest, metrics=metrics), payload


def with_update(delta_of: Callable[[Weights], Weights]) -> Tamper:
    """Replaces the honest update by a function of it; coding and digests fit."""

    def tamper(order: Order, outcome: Outcome) -> Outcome:
        assert outcome.update is not None
        assert outcome.reply is not None
        assert isinstance(outcome.reply.result, TrainResult)
        assert isinstance(order.action, Train)
        honest = decode_update(outcome.update, order.action.coding, SPECS)
        result, payload = train_result(
            order, encode_update(delta_of(honest), order.action.coding), dict(outcome.reply.result.metrics)
        )
        return replace(outcome, reply=outcome.reply.model_copy(update={"result": result}), update=payload)

    return tamper
