"""Nine gateways on gas sensors, all on batch 1, then three on batch 3 and three on batch 4; the product's parts."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from numpy.typing import NDArray

from edge_agent.drift.detectors import LossThresholdDetector
from edge_agent.drift.loss_rise import MONITOR_NAME, LossRiseParams, LossRiseState, rebaseline, step
from edge_agent.drift.losses import sample_losses
from edge_agent.model.inference import InferenceModel
from edge_agent.model.training_step import TrainingStep
from edge_agent.training.local_round import minibatches
from edge_agent.training.split_half import SPLIT_HALF_KEY, cosine, halves
from edge_agent.wire.tensors import Weights
from server_bridge.bundles.fit import FitSettings
from server_bridge.flower.records import DRIFT_KEY, EXAMPLES_KEY, LOSS_KEY, to_weights
from tests.benchmarks.cifar_data.grid import Trained
from tests.benchmarks.cohorts_data.gas import CLASSES, FEATURES, HIDDEN, SOURCE, TRAINING, read_batch
from tests.benchmarks.cohorts_data.real import GRAPH, Samples, dense_net, fit_base

BATCHES: Mapping[int, int] = MappingProxyType({0: 1, 1: 1, 2: 1, 3: 3, 4: 3, 5: 3, 6: 4, 7: 4, 8: 4})  # by gateway
DRIFT_ROUND = 3  # two rounds on batch 1 come before
OWN = {1: 30, 3: 40, 4: 40}  # samples a gateway trains on
CALIBRATION = 75  # of batch 1
MONITOR_BATCH, WARM_UP, WATCHED = 32, 10, 4  # batches served on new weights, then those of the present stream
FIT_EPOCHS = 60


@dataclass(frozen=True, slots=True)
class Own:
    """A gateway's samples of one gas batch: what it trains on, what it serves and what it is tested on."""

    train: Samples
    stream: Samples
    test: Samples


class GasGateways:
    """What all arms of a seed share.

    The base net has learnt from the nine gateways' batch 1, its monitor is calibrated on more of it. On batch 1
    they serve what no net has seen; later the samples that they then train on. No two share a training sample;
    those of one batch share the test samples.
    """

    def __init__(self, data: Path, work: Path, seed: int) -> None:
        self.seed = seed
        batches = {number: read_batch(data, number) for number in set(BATCHES.values())}
        mean, deviation = batches[1].features.mean(0), batches[1].features.std(0)
        scaled = {k: Samples((b.features - mean) / deviation, b.labels) for k, b in batches.items()}
        order = np.random.default_rng([seed, 1]).permutation(len(scaled[1].labels))
        calibration, rest = scaled[1].take(order[:CALIBRATION]), scaled[1].take(order[CALIBRATION:])
        first = self._shared_out(rest, OWN[1], tuple(BATCHES))
        self.first = {gateway: replace(own, stream=own.test) for gateway, own in first.items()}
        self.later: dict[int, Own] = {}
        for number in (3, 4):
            mine = [gateway for gateway, batch in BATCHES.items() if batch == number]
            self.later |= self._shared_out(scaled[number], OWN[number], mine)
        history = [own.train for own in first.values()]
        fit = Samples(np.concatenate([h.features for h in history]), np.concatenate([h.labels for h in history]))
        net = dense_net((FEATURES, HIDDEN, CLASSES), SOURCE, seed=seed)
        settings = FitSettings(FIT_EPOCHS, seed, monitor_batch=MONITOR_BATCH)
        self.bundle = fit_base(net, SOURCE, fit, calibration, settings, work / f"gas-{seed}")
        self.rule = LossRiseParams.from_spec(self.bundle.manifest.monitors[MONITOR_NAME])

    def of(self, gateway: int, number: int) -> Own:
        """A gateway's samples in round ``number``."""
        return self.later[gateway] if number >= DRIFT_ROUND and gateway in self.later else self.first[gateway]

    def _shared_out(self, batch: Samples, own: int, gateways: Sequence[int]) -> dict[int, Own]:
        """Disjoint training samples, which are what is served; the rest is every gateway's test."""
        order = np.random.default_rng([self.seed, len(batch.labels)]).permutation(len(batch.labels))
        test = batch.take(order[own * len(gateways) :])
        parts = [batch.take(order[place * own : (place + 1) * own]) for place in range(len(gateways))]
        return {gateway: Own(mine, mine, test) for gateway, mine in zip(gateways, parts, strict=True)}


@dataclass
class GasGateway:
    """One gateway under one arm: serves, flags, trains; the same code in every arm.

    Attributes:
        tells_reliability: whether a flagged gateway trains on two halves as well, as our bridge asks it to.
        by_monitor: flagged by the product's monitor on what was served since the round before; else by
            Algorithm 2 on the loss of the weights that were sent, over the training samples.
        arrived: accuracy of what it was sent, before it trained, by round.
    """

    fleet: GasGateways
    number: int
    tells_reliability: bool
    by_monitor: bool
    arrived: dict[int, float] = field(default_factory=dict)
    detector: LossThresholdDetector = field(default_factory=LossThresholdDetector)
    monitor: LossRiseState | None = None

    def train(self, message: Message, server_round: int) -> tuple[Message, Trained]:
        """The reply: the trained weights, the loss of those that were sent, the flag."""
        base = to_weights(message.content.array_records["arrays"])
        began_s = time.process_time()
        own = self.fleet.of(self.number, server_round)
        self.arrived[server_round] = self._accuracy(base, own.test)
        loss = float(sample_losses("cross-entropy", self._logits(base, own.train), own.train.labels).mean())
        fired = self._serves(base, server_round) if self.by_monitor else self.detector.update(loss)
        seed = int(np.random.default_rng([self.fleet.seed, self.number, server_round]).integers(2**31))
        weights = self._descend(base, own.train, seed)
        metrics: dict[str, int | float] = {DRIFT_KEY: int(fired), LOSS_KEY: loss, EXAMPLES_KEY: len(own.train.labels)}
        reliability = self._reliability(base, own.train, seed) if fired and self.tells_reliability else None
        if reliability is not None:
            metrics[SPLIT_HALF_KEY] = reliability
        arrays = ArrayRecord({name: Array(tensor) for name, tensor in weights.items()})
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord({**metrics})})
        return Message(content, reply_to=message), Trained(weights, loss, time.process_time() - began_s)

    def evaluate(self, message: Message, server_round: int) -> tuple[Message, float]:
        """The reply, with the accuracy of what was sent."""
        own = self.fleet.of(self.number, server_round)
        accuracy = self._accuracy(to_weights(message.content.array_records["arrays"]), own.test)
        metrics = MetricRecord({EXAMPLES_KEY: len(own.test.labels), "accuracy": accuracy})
        return Message(RecordDict({"metrics": metrics}), reply_to=message), accuracy

    def _serves(self, weights: Weights, number: int) -> bool:
        """Serve what came since the last round on its end's weights: the former stream, then the present one."""
        rule, rng = self.fleet.rule, np.random.default_rng([self.fleet.seed, self.number, number, 1])
        state = LossRiseState.start(rule) if self.monitor is None else rebaseline(rule, self.monitor)
        fired = False
        for round_of_data, batches in ((number - 1, WARM_UP), (number, WATCHED)):
            stream = self.fleet.of(self.number, round_of_data).stream
            for _ in range(batches):
                served = stream.take(rng.choice(len(stream.labels), MONITOR_BATCH, replace=False))
                losses = sample_losses("cross-entropy", self._logits(weights, served), served.labels)
                state, verdict = step(rule, state, losses)
                fired |= verdict.fired
        self.monitor = state
        return fired

    def _descend(self, base: Weights, samples: Samples, seed: int) -> Weights:
        trainer, rng = TrainingStep(self.fleet.bundle, GRAPH, base), np.random.default_rng(seed)
        for _ in range(TRAINING.epochs):
            for rows in minibatches(len(samples.labels), TRAINING.batch_size, rng):
                batch = {SOURCE: samples.features[rows]}
                trainer.step(batch, samples.labels[rows], learning_rate=TRAINING.learning_rate)
        return trainer.weights()

    def _reliability(self, base: Weights, samples: Samples, seed: int) -> float | None:
        trained = [self._descend(base, samples.take(rows), seed) for rows in halves(samples.labels, seed)]
        left, right = ({name: weights[name] - base[name] for name in base} for weights in trained)
        return cosine(left, right)

    def _accuracy(self, weights: Weights, samples: Samples) -> float:
        return float((self._logits(weights, samples).argmax(1) == samples.labels).mean())

    def _logits(self, weights: Weights, samples: Samples) -> NDArray[np.float32]:
        model = InferenceModel(self.fleet.bundle, weights)
        logits: NDArray[np.float32] = model.run({SOURCE: samples.features})[model.primary]
        return logits
