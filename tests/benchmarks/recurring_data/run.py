"""One run: a data set, a pattern, an arm and a seed, from the first time step to the last."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.benchmarks.cohorts_data.drifted import adjusted_rand
from tests.benchmarks.recurring_data.arms import ARMS
from tests.benchmarks.recurring_data.fleet import Fleet, Standing
from tests.benchmarks.recurring_data.net import Net, make_bundle
from tests.benchmarks.recurring_data.patterns import CLIENTS, STEPS, Pattern
from tests.benchmarks.recurring_data.tasks import Stream, Task, make_stream


@dataclass(frozen=True, slots=True)
class Result:
    """What one run shows.

    Attributes:
        next_step: mean accuracy of the clients on held-out data of the time step that follows, for each.
        same_step: the same on held-out data of the time step itself.
        kept: models that the server keeps after each time step.
        in_use: those of them that some client has.
        agreement: adjusted Rand index of cohorts and concepts after each time step.
        flags: clients that the detector flagged in each time step.
        drifts: clients whose concept changed in each time step.
        concepts: how many there were until the end.
        concepts_seen: how many until each time step.
        downloads: models that a client was sent, mean over clients.
        uploads: models that a client sent.
        evaluations: models not its own that a client scored.
        model_bytes: of one model's float32 weights.
    """

    task: str
    pattern: str
    arm: str
    seed: int
    next_step: list[float]
    same_step: list[float]
    kept: list[int]
    in_use: list[int]
    agreement: list[float]
    flags: list[int]
    drifts: list[int]
    concepts: int
    concepts_seen: list[int]
    downloads: float
    uploads: float
    evaluations: float
    model_bytes: int

    @property
    def mean_next(self) -> float:
        """Mean of ``next_step`` over the time steps."""
        return float(np.mean(self.next_step))

    @property
    def mean_same(self) -> float:
        """Mean of ``same_step`` over the time steps."""
        return float(np.mean(self.same_step))

    @property
    def traffic(self) -> float:
        """Models sent in both directions, mean over clients."""
        return self.downloads + self.uploads


class Setting:
    """What all arms of a data set, pattern and seed share."""

    def __init__(self, task: Task, pattern: Pattern, seed: int) -> None:
        self.task, self.pattern, self.seed = task, pattern, seed
        self.stream = make_stream(task, pattern, seed)
        with tempfile.TemporaryDirectory() as work:
            bundle = make_bundle(task.widths, self.stream.train[0][0], seed, Path(work))
            self.net = Net(bundle)
            self.initial = bundle.initial_weights()

    def run(self, arm: str) -> Result:
        """All time steps of an arm."""
        fleet = Fleet(self.task, self.stream, self.net, self.seed)
        ways = ARMS[arm](fleet, self.initial, self.pattern)
        standings = []
        for _ in range(STEPS):
            fleet.advance()
            standings.append(ways.time_step())
        return self._result(arm, fleet, standings)

    def _result(self, arm: str, fleet: Fleet, standings: Sequence[Standing]) -> Result:
        concepts = self.pattern.concepts
        steps = range(STEPS)
        return Result(
            task=self.task.name,
            pattern=self.pattern.name,
            arm=arm,
            seed=self.seed,
            next_step=[accuracy(self.net, standings[now], self.stream, now + 1) for now in steps],
            same_step=[accuracy(self.net, standings[now], self.stream, now) for now in steps],
            kept=[standing.kept for standing in standings],
            in_use=[len(set(standing.clusters)) for standing in standings],
            agreement=[adjusted_rand(numbers(standings[now].clusters), numbers(concepts[now])) for now in steps],
            flags=[len(flagged) for flagged in fleet.flagged],
            drifts=[0, *(int((concepts[now] != concepts[now - 1]).sum()) for now in steps[1:])],
            concepts=self.pattern.count,
            concepts_seen=[self.pattern.seen(now) for now in steps],
            downloads=fleet.cost.downloads / CLIENTS,
            uploads=fleet.cost.uploads / CLIENTS,
            evaluations=fleet.cost.evaluations / CLIENTS,
            model_bytes=sum(tensor.nbytes for tensor in self.initial.values()),
        )


def accuracy(net: Net, standing: Standing, stream: Stream, when: int) -> float:
    """Mean over clients, each under its own model on its held-out samples of a time step."""
    pairs = zip(standing.weights, stream.held[when], strict=True)
    return float(np.mean([net.accuracy(weights, samples) for weights, samples in pairs]))


def numbers(labels: Sequence[object] | np.ndarray) -> np.ndarray:
    """Names as numbers from 0."""
    return np.unique(np.asarray(labels), return_inverse=True)[1].astype(np.intp)
