"""What a hostile gateway of the benchmark sends instead of its update."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from edge_agent.wire.messages import Train
from edge_agent.wire.tensors import Weights, decode_weights
from server_bridge.aggregation.screening import tensors_norm
from server_bridge.flower.records import LOSS_KEY
from tests.benchmarks.motion_fleet import MotionFleet
from tests.flower.memory_fleet import MemoryFleet, MemoryGateway

COPY_NOISE = 0.1  # of the copied update's length
Spoil = Callable[[Weights], Weights]


def hostile_gateway(motion: MotionFleet, fleet: MemoryFleet, name: str, attack: str) -> MemoryGateway:
    """A gateway that trains as an honest one would, and answers as the attack says; who spoils tells of no loss."""
    gateway = motion.gateway(name)
    if attack in SPOILS or attack.startswith("copies"):
        gateway = replace(gateway, told=lambda base: {LOSS_KEY: 0.0})
    if attack in SPOILS:
        return replace(gateway, learn=lambda base, order: SPOILS[attack](motion.learn(name, base, order)))
    family = motion.clients[name].plan.family
    victim = next(n for n, c in motion.clients.items() if c.plan.family is family and n != name)
    if attack == "copies with noise":
        return replace(gateway, learn=lambda base, order: _noisy(_latest_of(motion, fleet, victim), order))
    if attack == "copies":
        return replace(
            gateway,
            learn=lambda base, order: _latest_of(motion, fleet, victim),
            tamper=lambda order, outcome: replace(outcome, arrived_s=1.0),
        )
    return gateway


def _noisy(delta: Weights, order: Train) -> Weights:
    noise = _noise_like(delta, COPY_NOISE * tensors_norm(delta), [9, order.round])
    return {name: tensor + noise[name] for name, tensor in delta.items()}


def _latest_of(motion: MotionFleet, fleet: MemoryFleet, victim: str) -> Weights:
    """The update that another gateway sends in this round."""
    order = next(order.action for order in reversed(fleet.orders) if order.gateway == victim)
    assert isinstance(order, Train)
    return motion.learn(victim, decode_weights(fleet.blobs[order.base.digest]), order)


def _scaled(factor: float) -> Spoil:
    return lambda delta: {name: tensor * np.float32(factor) for name, tensor in delta.items()}


def _nan(delta: Weights) -> Weights:
    spoilt = {name: tensor.copy() for name, tensor in delta.items()}
    next(iter(spoilt.values())).flat[0] = np.nan
    return spoilt


def _noise_like(delta: Weights, length: float, seed: Sequence[int]) -> Weights:
    """A random direction of a given length."""
    rng = np.random.default_rng(seed)
    drawn = {name: rng.normal(size=tensor.shape) for name, tensor in sorted(delta.items())}
    scale = length / math.sqrt(sum(float(np.square(tensor).sum()) for tensor in drawn.values()))
    return {name: (scale * tensor).astype(np.float32) for name, tensor in drawn.items()}


def _pushed(delta: Weights) -> Weights:
    """Always the same direction, which means nothing, at the honest length."""
    return _noise_like(delta, tensors_norm(delta), [5])


SPOILS: Mapping[str, Spoil] = {
    "NaN": _nan,
    "x1000": _scaled(1000),
    "x20": _scaled(20),
    "sign flip": _scaled(-1),
    "zero": _scaled(0),
    "constant push": _pushed,
}
