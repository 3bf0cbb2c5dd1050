"""A classifier of overlapping classes whose truth is known: what its accuracy is on any rows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.accuracy.calibrate import calibrate_accuracy
from edge_agent.drift.accuracy.estimated import AccuracyEstimate
from edge_agent.drift.accuracy.monitor import AccuracyParams, AccuracyState, latest, step
from edge_agent.drift.losses import sample_losses
from edge_agent.drift.observed import Observed
from edge_agent.drift.reference import Reference

Floats = NDArray[np.float64]

FEATURES, CLASSES, BATCH = 8, 4, 50


@dataclass(frozen=True)
class Rows:
    """Features, labels, and the logits of a model that is too sure of itself."""

    features: Floats
    labels: NDArray[np.int64]
    logits: Floats

    def take(self, rows: NDArray[np.int64]) -> "Rows":
        """Those rows."""
        return Rows(self.features[rows], self.labels[rows], self.logits[rows])

    def seen(self, features: Floats) -> "Rows":
        """The same samples through other readings."""
        return Rows(features, self.labels, model(features))

    @property
    def observed(self) -> Observed:
        """As monitors see them."""
        ids = [str(row) for row in range(len(self.labels))]
        return Observed(ids, np.arange(len(ids), dtype=np.float64), self.features, self.logits)

    @property
    def accuracy(self) -> float:
        """The truth."""
        return float((self.logits.argmax(axis=1) == self.labels).mean())


def draw(rows: int, rng: np.random.Generator, *, shares: tuple[float, ...] = (0.25, 0.25, 0.25, 0.25)) -> Rows:
    """Correlated features, a class a blob, neighbours overlapping; accuracy 0.80."""
    labels = rng.choice(CLASSES, rows, p=shares)
    features = rng.normal(size=(rows, FEATURES)) @ _mixing() + _centres()[labels]
    return Rows(features, labels, model(features))


def model(features: Floats) -> Floats:
    """Logits of the nearest centre, 1.5 times too steep."""
    whitened = features @ np.linalg.inv(_mixing())
    centres = _centres() @ np.linalg.inv(_mixing())
    logits: Floats = -0.75 * np.square(whitened[:, None, :] - centres).sum(axis=2)
    return logits


def calibrated(reference: Rows) -> AccuracyParams:
    """The build's part."""
    losses = sample_losses("cross-entropy", reference.logits, reference.labels)
    names = tuple(f"f{number}" for number in range(FEATURES))
    shown = Reference(
        reference.observed,
        losses,
        reference.labels,
        CLASSES,
        np.zeros(len(losses), np.int64),
        names,
        ("",) * FEATURES,
    )
    return calibrate_accuracy(shown, batch_size=BATCH, rng=np.random.default_rng(0))


def shown(params: AccuracyParams, state: AccuracyState, rows: Rows) -> tuple[AccuracyState, AccuracyEstimate | None]:
    """The state and the estimate after rows, a multiple of the batch."""
    for start in range(0, len(rows.labels), BATCH):
        state, _ = step(params, state, rows.take(np.arange(start, start + BATCH)).observed)
    return state, latest(params, state)


def window(params: AccuracyParams, rows: Rows) -> AccuracyEstimate:
    """The estimate of one window by itself."""
    _, found = shown(params, AccuracyState.start(params), rows)
    assert found is not None
    return found


def covered_or_refused(found: AccuracyEstimate, rows: Rows) -> bool:
    """No confident wrong figure."""
    return found.refused or found.low <= rows.accuracy <= found.high


def _mixing() -> Floats:
    rng = np.random.default_rng(99)
    return np.eye(FEATURES) + 0.4 * rng.normal(size=(FEATURES, FEATURES))


def _centres() -> Floats:
    corners = np.zeros((CLASSES, FEATURES))
    corners[[1, 2, 3], [0, 1, 2]] = 2.0
    centres: Floats = (corners * 1.15) @ _mixing()
    return centres
