"""Real stretches, and a net trained on a part of each."""

import gzip
import warnings
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.neural_network import MLPClassifier, MLPRegressor

from tests.benchmarks.cohorts_data.gas import read_batch
from tests.shared_data import DATA

Floats = NDArray[np.float64]
Classes = NDArray[np.int64]

HIDDEN, PASSES, FAINT = (32,), 100, -20.0
GAS, INSECTS, ELEC, TURBINE = "gas", "insects", "elec2", "turbine"
_INSECTS_FILE = "insects_gradual_balanced.zip"
NOX, SENSORS = 10, 9


@dataclass(frozen=True, slots=True)
class Stream:
    """Rows in the order in which they were measured.

    Attributes:
        features: (n, f).
        labels: (n,) class numbers or targets.
        classes: of all that ever come; 0: a regression.
    """

    features: Floats
    labels: NDArray[np.float64] | Classes
    classes: int


@lru_cache(maxsize=4)
def stream(name: str) -> Stream:
    """One of the streams; gas is batches 1 to 6 one after another."""
    return {GAS: _gas, INSECTS: _insects, ELEC: _elec, TURBINE: _turbine}[name]()


class Net:
    """One hidden layer, fitted by scikit-learn; classes that it has not seen get no chance."""

    def __init__(self, features: Floats, labels: NDArray[np.float64] | Classes, classes: int, seed: int) -> None:
        self.centre, self.spread = features.mean(axis=0), features.std(axis=0) + 1e-9
        self.classes = classes
        kind = MLPClassifier if classes else MLPRegressor
        self.learner = kind(hidden_layer_sizes=HIDDEN, max_iter=PASSES, random_state=seed, alpha=1e-3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that the passes were used up, which is what was asked for
            self.learner.fit((features - self.centre) / self.spread, labels)

    def outputs(self, features: Floats) -> Floats:
        """(n, classes) logits, or (n, 1) values."""
        scaled = (features - self.centre) / self.spread
        if not self.classes:
            return np.asarray(self.learner.predict(scaled), np.float64)[:, None]
        logits = np.full((len(features), self.classes), FAINT)
        logits[:, self.learner.classes_] = np.log(self.learner.predict_proba(scaled) + 1e-9)
        return logits


def _gas() -> Stream:
    batches = [read_batch(Path(DATA), number) for number in range(1, 7)]
    features = np.concatenate([batch.features for batch in batches]).astype(np.float64)
    return Stream(features, np.concatenate([batch.labels for batch in batches]), 6)


def _insects() -> Stream:
    with zipfile.ZipFile(Path(DATA) / _INSECTS_FILE) as archive:
        lines = archive.read(archive.namelist()[0]).decode().split()
    rows = [line.split(",") for line in lines]
    names = sorted({row[-1] for row in rows})
    labels = np.array([names.index(row[-1]) for row in rows])
    return Stream(np.array([row[:-1] for row in rows], np.float64), labels, len(names))


def _elec() -> Stream:
    with gzip.open(Path(DATA) / "elec2.csv.gz", "rt") as lines:
        table = np.loadtxt(lines, delimiter=",", skiprows=1)
    return Stream(table[:, :-1], table[:, -1].astype(np.int64), 2)


def _turbine() -> Stream:
    years = []
    for year in range(2011, 2015):
        with gzip.open(Path(DATA) / "gas_turbine" / f"gt_{year}.csv.gz", "rt") as lines:
            years.append(np.loadtxt(lines, delimiter=","))
    table = np.concatenate(years)
    return Stream(table[:, :SENSORS], table[:, NOX], 0)
