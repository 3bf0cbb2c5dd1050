"""Ten clients with the data of the present time step, in memory; what they compute and what is sent is counted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edge_agent.drift.detectors import LossThresholdDetector
from edge_agent.training.split_half import cosine, halves
from edge_agent.wire.tensors import Weights
from server_bridge.aggregation.means import weighted_mean
from tests.benchmarks.cohorts_data.real import Samples
from tests.benchmarks.recurring_data.net import Net
from tests.benchmarks.recurring_data.patterns import CLIENTS
from tests.benchmarks.recurring_data.tasks import Stream, Task

ROUNDS, LOCAL_STEPS, BATCH_SIZE = 4, 20, 32
WINDOW_STEPS = 4


@dataclass
class Cost:
    """Totals over all clients and time steps.

    Attributes:
        downloads: models sent to clients.
        uploads: models sent by clients.
        evaluations: scorings of a model that is not the client's own on one data set of a client.
    """

    downloads: int = 0
    uploads: int = 0
    evaluations: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """What an arm has after a time step.

    Attributes:
        weights: each client's model.
        clusters: each client's cohort.
        kept: how many models the server keeps.
    """

    weights: Sequence[Weights]
    clusters: Sequence[str]
    kept: int


class Fleet:
    """The clients of one run. Every arm has the same data, initial weights, detector and minibatches.

    A client trains on what it has gathered since its detector last flagged, the newest four time steps at most.

    Args:
        task: data set.
        stream: its data.
        net: trains and scores.
        seed: of the minibatches.
    """

    def __init__(self, task: Task, stream: Stream, net: Net, seed: int) -> None:
        self.task, self.stream, self.net, self.seed = task, stream, net, seed
        self.now, self.round = -1, 0
        self.cost = Cost()
        self.flagged: list[set[int]] = []
        self._detectors = [LossThresholdDetector(task.gamma) for _ in range(CLIENTS)]
        self._began = [0] * CLIENTS
        self._windows: dict[int, tuple[range, Samples]] = {}

    def advance(self) -> None:
        """The next time step's data arrive."""
        self.now, self.round = self.now + 1, 0
        self.flagged.append(set())

    def present(self, client: int) -> Samples:
        """The client's samples of this time step."""
        return self.stream.train[self.now][client]

    def window(self, client: int) -> Samples:
        """The client's samples since it last drifted, of the newest time steps."""
        times = range(max(self._began[client], self.now + 1 - WINDOW_STEPS), self.now + 1)
        if client not in self._windows or self._windows[client][0] != times:
            self._windows[client] = times, joined([self.stream.train[then][client] for then in times])
        return self._windows[client][1]

    def drifted(self, client: int, loss: float) -> bool:
        """Algorithm 2: whether the loss of this round's model shows drift; the client's window begins anew then."""
        flagged = self._detectors[client].update(loss)
        if flagged:
            self.begin_window(client)
            self.flagged[self.now].add(client)
        return flagged

    def begin_window(self, client: int) -> None:
        """The client trains on nothing older than this time step."""
        self._began[client] = self.now

    def loss(self, client: int, weights: Weights) -> float:
        """Mean loss of a model on the client's samples of this time step."""
        return self.net.loss(weights, self.present(client))

    def learn(self, client: int, base: Weights, samples: Samples) -> Weights:
        """One local round."""
        rng = np.random.default_rng([self.seed, client, self.now, self.round])
        rows = rng.integers(len(samples.labels), size=(LOCAL_STEPS, BATCH_SIZE))
        return self.net.train(base, [samples.take(mine) for mine in rows], self.task.learning_rate)

    def split_half(self, client: int, base: Weights, samples: Samples) -> float | None:
        """How far the updates of two halves of the samples agree: the gateway's reply metric."""
        parts = [self.learn(client, base, samples.take(rows)) for rows in halves(samples.labels, self.seed)]
        left, right = ({name: part[name] - base[name] for name in base} for part in parts)
        return cosine(left, right)


def joined(parts: Sequence[Samples]) -> Samples:
    """Samples one after the other."""
    if len(parts) == 1:
        return parts[0]
    return Samples(np.concatenate([p.features for p in parts]), np.concatenate([p.labels for p in parts]))


def mean_weights(models: Sequence[Mapping[str, np.ndarray]], sizes: Sequence[float]) -> Weights:
    """The weighted mean, as float32."""
    return {name: tensor.astype(np.float32) for name, tensor in weighted_mean(models, sizes).items()}
