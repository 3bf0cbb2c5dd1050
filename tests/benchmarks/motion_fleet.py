"""The demo's task without its processes: real data, net, training graph, screening and strategy, no broker."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge_agent.model.bundle import Bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.model.training_step import TrainingStep
from edge_agent.training.evaluation import evaluate
from edge_agent.training.local_round import minibatches
from edge_agent.wire.messages import Train
from edge_agent.wire.tensors import Weights
from edge_agent.wire.updates import Coding
from server_bridge.demo.base import lay_groundwork
from server_bridge.demo.data import INPUT, Windows, make_stream
from server_bridge.demo.plan import Family, GatewayPlan
from server_bridge.demo.recordings import load_recordings
from server_bridge.demo.timing import (
    BATCH_SIZE,
    FIRST_LEARNING_RATE,
    LEARNING_RATE,
    LOCAL_EPOCHS,
    ROUND_MOST_SAMPLES,
)
from server_bridge.flower.records import LOSS_KEY
from server_bridge.flower.settings import GridSettings
from tests.flower.memory_fleet import MemoryGateway

CODING: Coding = "fp16"
GRAPH = "adam"
DRAW_APART = 10_000
LEARNED_KEPT = 2500  # 100 kB each: modes that do the same share what was learned


@dataclass(frozen=True, slots=True)
class Client:
    """A gateway's data after its remount.

    Attributes:
        train: the newest windows that a round trains on.
        held: holdout windows.
    """

    plan: GatewayPlan
    train: Windows
    held: Windows


class MotionFleet:
    """Gateways of the demo, in memory.

    Args:
        work: folder for the bundle.
        plans: who is in the fleet.
        seed: of base weights, streams and local rounds.
    """

    def __init__(self, work: Path, plans: Sequence[GatewayPlan], seed: int) -> None:
        self.seed = seed
        self.bundle: Bundle = lay_groundwork(work, (), seed=seed, rate_hz=1.0).bundle
        recordings, _ = load_recordings()
        self.clients: dict[str, Client] = {}
        self._learned: OrderedDict[tuple[str, str, float, int], Weights] = OrderedDict()
        for plan in plans:
            stream = make_stream(plan, recordings, seed)
            second = stream.windows.take(np.arange(stream.loop_from_row, len(stream.windows)))
            own = np.flatnonzero(~second.holdout)[:ROUND_MOST_SAMPLES]
            self.clients[plan.id] = Client(plan, second.take(own), second.take(np.flatnonzero(second.holdout)))

    def gateway(self, name: str) -> MemoryGateway:
        """An honest gateway."""
        return MemoryGateway(
            lambda base, order: self.learn(name, base, order),
            told=lambda base: {LOSS_KEY: self._loss(self.clients[name], base)},
            examples=len(self.clients[name].train),
        )

    def learn(self, name: str, base: Weights, order: Train) -> Weights:
        """A local round: trained minus base; the same round is not computed twice."""
        key = (name, order.base.digest, order.learning_rate, order.seed)
        if key not in self._learned:
            self._learned[key] = self._train(name, base, order)
        if len(self._learned) > LEARNED_KEPT:
            self._learned.popitem(last=False)
        return self._learned[key]

    def _train(self, name: str, base: Weights, order: Train) -> Weights:
        data = self.clients[name].train
        step = TrainingStep(self.bundle, order.training_graph, base)
        rng = np.random.default_rng(order.seed)
        for _ in range(order.epochs):
            for rows in minibatches(len(data), order.batch_size, rng):
                step.step({INPUT: data.signal[rows]}, data.label[rows], learning_rate=order.learning_rate)
        trained = step.weights()
        return {tensor: trained[tensor] - base[tensor] for tensor in trained}

    def settings(self, number: int, draw: int = 0) -> GridSettings:
        """What the demo's round of this number asks for; another draw has the minibatches in another order."""
        return GridSettings(
            adaptation="a1",
            bundle=self.bundle.digest,
            specs=tuple(self.bundle.manifest.trainable),
            training_graph=GRAPH,
            learning_rate=FIRST_LEARNING_RATE if number == 1 else LEARNING_RATE,
            epochs=LOCAL_EPOCHS,
            batch_size=BATCH_SIZE,
            min_samples=1,
            max_samples=ROUND_MOST_SAMPLES,
            coding=CODING,
            seed=self.seed + DRAW_APART * draw,
        )

    def accuracies(self, weights: Mapping[str, Weights], names: Sequence[str]) -> dict[str, float]:
        """Holdout accuracy of each gateway under its own weights."""
        return {name: self._accuracy(self.clients[name], weights[name]) for name in names}

    def by_family(self, accuracies: Mapping[str, float]) -> dict[str, float]:
        """Mean accuracy of each family's gateways."""
        of: dict[Family, list[float]] = {}
        for name, accuracy in accuracies.items():
            of.setdefault(self.clients[name].plan.family, []).append(accuracy)
        return {str(family): float(np.mean(values)) for family, values in of.items()}

    def _loss(self, client: Client, weights: Weights) -> float:
        """What a gateway's reply tells of the weights that it was sent: the mean loss on what it trains on."""
        model = InferenceModel(self.bundle, weights)
        found = evaluate(model, self.bundle.manifest, {INPUT: client.train.signal}, client.train.label)
        return found.loss

    def _accuracy(self, client: Client, weights: Weights) -> float:
        model = InferenceModel(self.bundle, weights)
        found = evaluate(model, self.bundle.manifest, {INPUT: client.held.signal}, client.held.label)
        return float(found.accuracy or 0.0)
