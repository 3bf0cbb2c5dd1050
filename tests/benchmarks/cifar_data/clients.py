"""Clients: images, labels that turn, local training with the bundle's training graph, Algorithm 2."""

import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from edge_agent.model.bundle import Bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.model.training_step import TrainingStep
from edge_agent.training.local_round import minibatches
from edge_agent.training.split_half import SPLIT_HALF_KEY, cosine, halves
from edge_agent.wire.tensors import Weights
from server_bridge.flower.records import DRIFT_KEY, to_weights
from server_bridge.flower.reporting import DriftReporter
from tests.benchmarks.cifar_data.grid import Trained
from tests.benchmarks.cifar_data.images import Images
from tests.benchmarks.cifar_data.net import GRAPH, LOGITS, SOURCE, build
from tests.benchmarks.cifar_data.setting import CLIENTS, Setting, concept, partition
from tests.benchmarks.cifar_data.training_cache import Arrays, TrainingCache, digest_of

LEARNING_RATE, EPOCHS, BATCH_SIZE = 0.01, 1, 32
EVALUATED_AT_ONCE, STATISTICS_IMAGES = 100, 500
MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


@dataclass
class CifarFleet:
    """What all arms of one seed share: bundle, images, and what was trained before."""

    setting: Setting
    seed: int
    images: Images
    cache: TrainingCache
    work: Path
    bundle: Bundle = field(init=False)

    def __post_init__(self) -> None:
        self.parts = partition(self.setting, self.images.labels, self.seed)
        rows = np.random.default_rng([self.seed, 0x57A7]).permutation(len(self.images.labels))[:STATISTICS_IMAGES]
        statistics = self.setting.statistics
        folder = self.work / f"{statistics}-{self.seed}"
        self.bundle = build(folder, self.pixels(rows), self.images.labels[rows], self.seed, statistics)

    def pixels(self, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """(n, 3, 32, 32) standardised by channel."""
        mean, deviation = (np.array(values, np.float32)[:, None, None] for values in (MEAN, DEVIATION))
        shown = self.images.pixels[rows].astype(np.float32) / np.float32(255)
        return (shown - mean) / deviation

    def train(self, client: int, base: Weights, number: int) -> Trained:
        """One local round from the given weights, on the labels of round ``number``."""
        base = self.cache.known(base, f"{self.bundle.digest} {self.setting.name} {self.seed} {number}")
        rows, labels = self.parts[client][0], concept(self.setting, client, number)
        depends_on = self._training(client, base, rows, number)
        found = self.cache.get(lambda: self._descend(client, base, rows, labels, number), **depends_on)
        weights = {name[2:]: array for name, array in found.items() if name.startswith("w.")}
        return Trained(weights, float(found["loss"]), float(found["cpu_s"]))

    def reliability(self, client: int, base: Weights, number: int) -> float | None:
        """The cosine of the updates from two halves of the client's images, as a gateway tells it when asked."""
        base = self.cache.known(base, f"{self.bundle.digest} {self.setting.name} {self.seed} {number}")
        rows, labels = self.parts[client][0], concept(self.setting, client, number)

        def compute() -> Arrays:
            parts = [rows[half] for half in halves(self.images.labels[rows], self.seed)]
            trained = [self._descend(client, base, part, labels, number) for part in parts]
            left, right = ({name: found[f"w.{name}"] - base[name] for name in base} for found in trained)
            agreement = cosine(left, right)
            return {"cosine": np.array(np.nan if agreement is None else agreement)}

        depends_on = self._training(client, base, rows, number) | {"what": "halves"}
        agreement = float(self.cache.get(compute, **depends_on)["cosine"])
        return agreement if np.isfinite(agreement) else None

    def accuracy(self, client: int, weights: Weights, number: int) -> float:
        """On the client's test images, labelled as in round ``number``."""
        weights = self.cache.known(weights, f"{self.bundle.digest} {self.setting.name} {self.seed} {number + 1}")
        rows = self.parts[client][1]
        depends_on = {"what": "test", "weights": digest_of(weights), "rows": digest_of({"rows": rows})}
        depends_on["how"] = self.bundle.digest
        said = self.cache.get(lambda: self._predict(rows, weights), **depends_on)["classes"]
        wanted = concept(self.setting, client, number)[self.images.labels[rows]]
        return float((said == wanted).mean())

    def _training(self, client: int, base: Weights, rows: NDArray[np.intp], number: int) -> dict[str, str]:
        """All that a local round depends on."""
        return {
            "what": "train",
            "base": digest_of(base),
            "rows": digest_of({"rows": rows}),
            "labels": repr(concept(self.setting, client, number).tolist()),
            "seed": f"{self.seed} {client} {number}",
            "how": f"{self.bundle.digest} {GRAPH} {LEARNING_RATE} {EPOCHS} {BATCH_SIZE}",
        }

    def _descend(
        self, client: int, base: Weights, rows: NDArray[np.intp], labels: NDArray[np.int64], number: int
    ) -> Arrays:
        began_s = time.process_time()
        pixels, wanted = self.pixels(rows), labels[self.images.labels[rows]]
        step = TrainingStep(self.bundle, GRAPH, base)
        rng = np.random.default_rng([self.seed, client, number])
        losses = [
            step.step({SOURCE: pixels[batch]}, wanted[batch], learning_rate=LEARNING_RATE)
            for _ in range(EPOCHS)
            for batch in minibatches(len(rows), BATCH_SIZE, rng)
        ]
        trained: Arrays = {f"w.{name}": tensor for name, tensor in step.weights().items()}
        return {**trained, "loss": np.array(np.mean(losses)), "cpu_s": np.array(time.process_time() - began_s)}

    def _predict(self, rows: NDArray[np.intp], weights: Weights) -> Arrays:
        model = InferenceModel(self.bundle, weights)
        blocks = np.split(rows, range(EVALUATED_AT_ONCE, len(rows), EVALUATED_AT_ONCE))
        said = [model.run({SOURCE: self.pixels(block)})[LOGITS].argmax(1) for block in blocks]
        return {"classes": np.concatenate(said).astype(np.int8)}


@dataclass
class Client:
    """One client under one arm: the same code whatever the strategy.

    Attributes:
        tells_reliability: whether it trains on two halves as well when it flags, as our bridge asks it to.
    """

    fleet: CifarFleet
    number: int
    tells_reliability: bool = False
    context: Context = field(default_factory=lambda: Context(1, 1, {}, RecordDict(), {}))

    def train(self, message: Message, server_round: int) -> tuple[Message, Trained]:
        """The reply, with the flag of Algorithm 2 on the round's loss."""
        base = to_weights(message.content.array_records["arrays"])
        trained = self.fleet.train(self.number, base, server_round)
        arrays = ArrayRecord({name: Array(trained.weights[name]) for name in base})
        examples = len(self.fleet.parts[self.number][0])
        reply = DriftReporter(self.context).build_reply(message, arrays, trained.loss, examples)
        metrics = reply.content.metric_records["metrics"]
        if self.tells_reliability and metrics[DRIFT_KEY]:
            reliability = self.fleet.reliability(self.number, base, server_round)
            metrics.update({} if reliability is None else {SPLIT_HALF_KEY: reliability})
        return reply, trained

    def evaluate(self, message: Message, server_round: int) -> tuple[Message, float]:
        """The reply, with the accuracy of what was sent."""
        weights = to_weights(message.content.array_records["arrays"])
        accuracy = self.fleet.accuracy(self.number, weights, server_round)
        metrics = MetricRecord({"num-examples": len(self.fleet.parts[self.number][1]), "accuracy": accuracy})
        return Message(RecordDict({"metrics": metrics}), reply_to=message), accuracy


def clients_of(fleet: CifarFleet, *, tell_reliability: bool) -> dict[int, Client]:
    """Fresh clients by Flower's node id."""
    return {1 + number: Client(fleet, number, tell_reliability) for number in range(CLIENTS)}
