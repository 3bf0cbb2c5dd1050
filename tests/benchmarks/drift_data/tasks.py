"""Real data, a small net trained on the first stretch, and what it is judged by afterwards."""

import gzip
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neural_network import MLPClassifier, MLPRegressor

from edge_agent.drift.losses import sample_losses
from tests.benchmarks.cohorts_data.gas import read_batch

Floats = NDArray[np.float64]
HIDDEN, HALF_HOURS, SAMPLES_SEEN = (32,), 48, 150_000
# A regression has no errors to count: a residual beyond this share of the held-out ones is one.
ERROR_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Rows:
    """Samples in order: (n, f) features scaled by the first stretch, (n,) classes or scaled values."""

    features: Floats
    labels: Floats

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: NDArray[np.intp]) -> "Rows":
        """The given rows, in that order."""
        return Rows(self.features[rows], self.labels[rows])


@dataclass(frozen=True, slots=True)
class Judged:
    """What the net makes of samples: outputs (n, k), embeddings (n, d), losses (n,), errors (n,) 0 or 1."""

    outputs: Floats
    embeddings: Floats
    losses: Floats
    errors: Floats


class Net:
    """One hidden layer, fitted by scikit-learn, run by numpy; a large residual counts as an error."""

    def __init__(self, fit: Rows, classes: int, seed: int = 0) -> None:
        kind: Any = MLPClassifier if classes else MLPRegressor
        passes = max(1, SAMPLES_SEEN // len(fit))
        learner = kind(
            hidden_layer_sizes=HIDDEN, max_iter=passes, random_state=seed, n_iter_no_change=passes, batch_size=32
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the steps were used up, which is what was asked for
            learner.fit(fit.features, fit.labels.astype(np.int64) if classes else fit.labels)
        self.classes = classes
        self.tensors = [np.asarray(part) for part in (*learner.coefs_, *learner.intercepts_)]
        self.seen = np.asarray(learner.classes_) if classes else None
        self.limit = np.inf

    def judge(self, rows: Rows) -> Judged:
        """Outputs, embeddings, losses and errors of samples."""
        first, second, bias, offset = self.tensors
        hidden = np.maximum(rows.features @ first + bias, 0)
        outputs = self._spread(hidden @ second + offset)
        if self.classes:
            labels = rows.labels.astype(np.int64)
            losses = np.minimum(sample_losses("cross-entropy", outputs, labels), 2 * np.log(self.classes))
            return Judged(outputs, hidden, losses, (outputs.argmax(1) != labels).astype(np.float64))
        losses = sample_losses("huber", outputs, rows.labels)
        return Judged(outputs, hidden, losses, (losses > self.limit).astype(np.float64))

    def _spread(self, outputs: Floats) -> Floats:
        """Logits of all classes: binary nets give one, and classes that were never seen none."""
        if self.seen is None:
            return outputs
        if outputs.shape[1] == 1:
            outputs = np.hstack([np.zeros_like(outputs), outputs])
        every = np.full((len(outputs), self.classes), -20.0)
        every[:, self.seen] = outputs
        return every


@dataclass(frozen=True, slots=True)
class Task:
    """A net and its data.

    Attributes:
        name: of the data.
        net: trained on rows of the first stretch that are in neither of the following.
        pool: the first stretch's other rows, in order: references, stationary streams and the time before a drift.
        later: stretches of real drift, in order.
        block: rows that are drawn together, for what follows one another alike.
        ordered: whether later rows are played in their order, or drawn one by one.
    """

    name: str
    net: Net
    pool: Rows
    later: tuple[Rows, ...]
    block: int
    ordered: bool

    @property
    def reference_size(self) -> int:
        """Rows of a reference."""
        return min(len(self.pool), 2000)


def load(name: str, folder: Path) -> Task:
    """The task of a name in :data:`TASKS`."""
    return TASKS[name](folder)


def _split(rows: Rows, block: int, share: float = 0.5) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows to train on and the others, by whole blocks chosen at random."""
    blocks = -(-len(rows) // block)
    chosen = np.random.default_rng(0).permutation(blocks) < share * blocks
    training = np.repeat(chosen, block)[: len(rows)]
    return np.flatnonzero(training), np.flatnonzero(~training)


def _task(name: str, first: Rows, later: list[Rows], classes: int, block: int, ordered: bool) -> Task:
    training, others = _split(first, max(1, 7 * block) if block > 1 else 1)
    fit = first.take(training)
    centre, width = fit.features.mean(0), np.maximum(fit.features.std(0), 1e-9)
    middle, spread = (0.0, 1.0) if classes else (fit.labels.mean(), fit.labels.std())

    def scaled(rows: Rows) -> Rows:
        return Rows(np.clip((rows.features - centre) / width, -20, 20), (rows.labels - middle) / spread)

    net = Net(scaled(fit), classes)
    pool = scaled(first.take(others))
    if not classes:
        net.limit = float(np.quantile(net.judge(pool).losses, ERROR_SHARE))
    return Task(name, net, pool, tuple(map(scaled, later)), block, ordered)


def _gas(folder: Path) -> Task:
    """16 sensors, the steady-state reading of each; batches 1 to 6, rows drawn since batches are sorted by gas."""
    batches = [read_batch(folder, number) for number in range(1, 7)]
    rows = [Rows(b.features[:, ::8].astype(np.float64), b.labels.astype(np.float64)) for b in batches]
    return _task("gas", rows[0], rows[1:], 6, 1, False)


def _turbine(folder: Path) -> Task:
    """Nine sensors, hourly; NOx is to be told."""
    years = []
    for year in range(2011, 2015):
        with gzip.open(folder / "gas_turbine" / f"gt_{year}.csv.gz", "rt") as lines:
            table = np.loadtxt(lines, delimiter=",")
        years.append(Rows(table[:, :9], table[:, 10]))
    return _task("turbine", years[0], years[1:], 0, HALF_HOURS // 2, True)


def _insects(folder: Path) -> Task:
    """33 features; the first 4,800 rows, before the temperature rises and the classes change."""
    with zipfile.ZipFile(folder / "insects_gradual_balanced.zip") as archive:
        table = np.loadtxt(archive.open(archive.namelist()[0]), delimiter=",")
    rows = Rows(table[:, :-1], np.searchsorted(np.unique(table[:, -1]), table[:, -1]).astype(np.float64))
    return _task("insects", rows.take(np.arange(4800)), [rows.take(np.arange(4800, len(rows)))], 6, 1, True)


def _elec2(folder: Path) -> Task:
    """Six features, half-hourly; the first 10,000 rows, before the second state's prices come in."""
    with gzip.open(folder / "elec2.csv.gz", "rt") as lines:
        table = np.loadtxt(lines, delimiter=",", skiprows=1)
    rows = Rows(table[:, :6], table[:, 6])
    later = rows.take(np.arange(10_000, len(rows)))
    return _task("elec2", rows.take(np.arange(10_000)), [later], 2, HALF_HOURS, True)


TASKS: Mapping[str, Callable[[Path], Task]] = MappingProxyType(
    {"gas": _gas, "turbine": _turbine, "insects": _insects, "elec2": _elec2}
)
