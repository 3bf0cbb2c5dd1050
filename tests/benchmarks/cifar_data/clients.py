"""Clients: images, labels that turn, local training with the bundle's training graph, Algorithm 2."""

import math
import time
from collections.abc import Callable
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
from server_bridge.flower.records import CANDIDATE_KEY, DRIFT_KEY, to_weights
from server_bridge.flower.reporting import DriftReporter
from tests.benchmarks.cifar_data.grid import Trained
from tests.benchmarks.cifar_data.images import Images
from tests.benchmarks.cifar_data.net import GRAPH, LOGITS, SOURCE, build
from tests.benchmarks.cifar_data.setting import CLIENTS, Setting, concept, partition
from tests.benchmarks.cifar_data.training_cache import Arrays, TrainingCache, digest_of

LEARNING_RATE, EPOCHS, BATCH_SIZE = 0.01, 1, 32
EVALUATED_AT_ONCE, STATISTICS_IMAGES, JUDGED_IMAGES = 100, 500, 500
GAMMA = 0.1
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
        statistics, start = self.setting.statistics, self.setting.start
        folder = self.work / (f"{statistics}-{self.seed}" if start == "normal" else f"{statistics}-{start}-{self.seed}")
        self.bundle = build(folder, self.pixels(rows), self.images.labels[rows], self.seed, statistics, start)

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

    def losses(self, client: int, weights: Weights, number: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Cross-entropies on some of the client's training images: labelled as in the round before, and in this one."""
        rows = self.parts[client][0][:JUDGED_IMAGES]
        logits = self._logits(rows, weights).astype(np.float64)
        logits -= logits.max(1, keepdims=True)
        minus_log = np.log(np.exp(logits).sum(1, keepdims=True)) - logits
        labels = [concept(self.setting, client, n)[self.images.labels[rows]] for n in (max(1, number - 1), number)]
        before, now = (minus_log[np.arange(len(rows)), wanted] for wanted in labels)
        return before, now

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
        return {"classes": self._logits(rows, weights).argmax(1).astype(np.int8)}

    def _logits(self, rows: NDArray[np.intp], weights: Weights) -> NDArray[np.float32]:
        model = InferenceModel(self.bundle, weights)
        blocks = np.split(rows, range(EVALUATED_AT_ONCE, len(rows), EVALUATED_AT_ONCE))
        return np.concatenate([model.run({SOURCE: self.pixels(block)})[LOGITS] for block in blocks])


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
        """The reply, with the accuracy of what was sent; of a candidate the loss on samples since the drift."""
        weights = to_weights(message.content.array_records["arrays"])
        if CANDIDATE_KEY in message.content.config_records["config"]:
            _, losses = self.fleet.losses(self.number, weights, server_round)
            error = float(losses.std(ddof=1) / np.sqrt(len(losses)))
            told: dict[str, int | float | list[int] | list[float]] = {"num-examples": len(losses)}
            told |= {"loss": float(losses.mean()), "loss-error": error}
            return Message(RecordDict({"metrics": MetricRecord(told)}), reply_to=message), math.nan
        accuracy = self.fleet.accuracy(self.number, weights, server_round)
        metrics = MetricRecord({"num-examples": len(self.fleet.parts[self.number][1]), "accuracy": accuracy})
        return Message(RecordDict({"metrics": metrics}), reply_to=message), accuracy


class Monitors:
    """Who notices a drift before the round, as gateways do while they serve: Algorithm 4 on the model that each holds.

    Args:
        fleet: whose images.
        held: the weights that a client holds.
    """

    def __init__(self, fleet: CifarFleet, held: Callable[[int], Weights]) -> None:
        self._fleet, self._held = fleet, held
        self._flagged: dict[int, set[int]] = {}

    def __call__(self, server_round: int) -> set[int]:
        """Flower's node ids of those whose loss has risen by more than gamma since the round before."""
        if server_round not in self._flagged:
            self._flagged[server_round] = {1 + c for c in range(CLIENTS) if self._rises(c, server_round)}
        return self._flagged[server_round]

    def _rises(self, client: int, number: int) -> bool:
        before, now = self._fleet.losses(client, self._held(client), number)
        return bool(now.mean() > before.mean() + GAMMA)


def clients_of(fleet: CifarFleet, *, tell_reliability: bool) -> dict[int, Client]:
    """Fresh clients by Flower's node id."""
    return {1 + number: Client(fleet, number, tell_reliability) for number in range(CLIENTS)}
