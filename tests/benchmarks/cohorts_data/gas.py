"""Real drift: gas sensors age over 36 months. An MLP trained on batch 1, clients with samples of later batches."""

import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift import faults
from edge_agent.drift.observed import Observed
from edge_agent.drift.reference import Reference
from server_bridge.bundles.fit import FitSettings
from tests.benchmarks.cohorts_data.drifted import Drifted
from tests.benchmarks.cohorts_data.real import Samples, Training, dense_net, fit_base, layers_of, split_half, update

FEATURES, CLASSES, HIDDEN = 128, 6, 32
TRAINING = Training(epochs=5, learning_rate=0.001, batch_size=16)
# A client's training length and optimiser are anybody's choice; what the cohorter does must not hang on them.
RECIPES: Mapping[str, Training] = MappingProxyType(
    {
        "Adam 0.001 x 5": TRAINING,
        "Adam 0.003 x 10": Training(epochs=10, learning_rate=0.003, batch_size=16),
        "descent 0.01 x 10": Training(epochs=10, learning_rate=0.01, batch_size=16, graph="momentum"),
    }
)
SOURCE = "gas"


def read_batch(folder: Path, number: int) -> Samples:
    """One batch, raw units."""
    features, labels = [], []
    with gzip.open(folder / "gas_drift" / f"batch{number}.dat.gz", "rt") as lines:
        for line in lines:
            head, *entries = line.split()
            labels.append(int(head.split(";")[0]) - 1)
            features.append([float(entry.split(":")[1]) for entry in entries])
    return Samples(np.array(features, np.float32), np.array(labels, np.int64))


def _observed(features: NDArray[np.float32]) -> Observed:
    rows = len(features)
    return Observed([str(row) for row in range(rows)], np.arange(rows, dtype=np.float64), features, features[:, :0])


class GasFleet:
    """Clients on gas-sensor batches; features standardised by batch 1."""

    def __init__(self, data: Path, work: Path, training: Training = TRAINING, *, folder: str = "gas") -> None:
        self.training = training
        batches = {number: read_batch(data, number) for number in (1, 2, 3, 4, 5, 6)}
        mean, deviation = batches[1].features.mean(0), batches[1].features.std(0)
        self.batches = {k: Samples((b.features - mean) / deviation, b.labels) for k, b in batches.items()}
        order = np.random.default_rng(0).permutation(len(self.batches[1].labels))
        fit, held = self.batches[1].take(order[:345]), self.batches[1].take(order[345:])
        net = dense_net((FEATURES, HIDDEN, CLASSES), SOURCE, seed=0)
        self.bundle = fit_base(net, SOURCE, fit, held, FitSettings(60, monitor_batch=16), work / folder)
        self.base = self.bundle.initial_weights()

    def screened(self, data: Path) -> Self:
        """The same without the samples that a gateway would not train on: those with a reading that the fault screen,
        calibrated on batch 1, takes for broken, each batch screened in its order."""
        raw = {number: read_batch(data, number) for number in self.batches}
        reference = raw[1].features
        rows = len(reference)
        seen = Reference(_observed(reference), np.zeros(rows), raw[1].labels, CLASSES, np.zeros(rows, np.int64), (), ())
        params = faults.calibrate(seen, self.bundle.manifest)
        for number in (2, 3, 4, 5, 6):
            observed = _observed(raw[number].features)
            fit = faults.step(params, faults.FaultState.start(params), observed)[1].fit(len(observed))
            self.batches[number] = self.batches[number].take(np.flatnonzero(fit))
        return self

    def draw(self, families: Sequence[tuple[int, int]], seed: int) -> Drifted:
        """Clients of the given (batch, members), 20-80 disjoint examples each where the batch has so many."""
        rng = np.random.default_rng([seed, *(part for family in families for part in family)])
        changes, truth, halves, examples = [], [], [], []
        for number, (batch, members) in enumerate(families):
            spare = rng.permutation(len(self.batches[batch].labels))
            sizes = rng.integers(20, 81, members)
            shrink = min(1.0, len(spare) / sizes.sum())
            for size in (sizes * shrink).astype(int):
                mine, spare = self.batches[batch].take(spare[:size]), spare[size:]
                seed_of_client = int(rng.integers(2**31))
                changes.append(update(self.bundle, self.base, mine, self.training, seed_of_client))
                halves.append(split_half(self.bundle, self.base, mine, self.training, seed_of_client))
                truth.append(number)
                examples.append(float(size))
        parts = np.stack(changes), np.array(truth, np.intp), np.array(halves), None, np.array(examples)
        return Drifted(*parts, layers_of(self.base))
