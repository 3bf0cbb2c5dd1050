"""A model of known accuracy in a world whose neighbours resemble each other."""

import numpy as np
from numpy.typing import NDArray
from scipy.signal import lfilter

from edge_agent.drift.accuracy.calibrate import calibrate_accuracy
from edge_agent.drift.accuracy.estimated import AccuracyEstimate
from edge_agent.drift.accuracy.monitor import AccuracyParams, AccuracyState, latest, step_many
from edge_agent.drift.losses import sample_losses
from edge_agent.drift.observed import Observed
from edge_agent.drift.reference import Reference

Floats = NDArray[np.float64]

FEATURES, CLASSES, WINDOW = 8, 4, 500


def autoregressive(rows: int, phi: float, rng: np.random.Generator) -> Floats:
    """(rows, features) from the stationary law on, each of deviation 1; of phi 1 a walk from 0 on, of steps of 0.1."""
    if phi == 1.0:
        return np.asarray(np.cumsum(0.1 * rng.normal(size=(rows, FEATURES)), axis=0))
    steps = rng.normal(size=(rows, FEATURES)) * np.sqrt(1 - phi**2)
    begin = phi * rng.normal(size=(1, FEATURES))
    return np.asarray(lfilter([1.0], [1.0, -phi], steps, axis=0, zi=begin)[0])


class World:
    """Features of an autoregression, labels that a linear form of them makes likely, and a model that knows it."""

    def __init__(self, phi: float, seed: int) -> None:
        """With neighbours correlated by ``phi``."""
        self.phi, self.rng = phi, np.random.default_rng(seed)
        self.form = 1.5 * self.rng.normal(size=(FEATURES, CLASSES))

    def calibrated(self, rows: int, *, shuffled: bool = False) -> AccuracyParams:
        """The build's part, of so many rows."""
        features = autoregressive(rows, self.phi, self.rng)
        return self.calibrated_on(self.rng.permutation(features) if shuffled else features)

    def calibrated_on(self, features: Floats) -> AccuracyParams:
        """The build's part, of these rows."""
        rows = len(features)
        logits, labels = self.served(features)
        names = tuple(map(str, range(FEATURES)))
        losses = sample_losses("cross-entropy", logits, labels)
        seen, together = self.seen(features), np.zeros(rows, np.int64)
        reference = Reference(seen, losses, labels, CLASSES, together, names, ("",) * FEATURES)
        return calibrate_accuracy(reference, batch_size=50, rng=self.rng)

    def served(self, features: Floats) -> tuple[Floats, NDArray[np.int64]]:
        """Logits and labels."""
        logits = features @ self.form
        return logits, (logits + self.rng.gumbel(size=logits.shape)).argmax(axis=1)

    def seen(self, features: Floats) -> Observed:
        """As monitors see them."""
        ids = [str(row) for row in range(len(features))]
        return Observed(ids, np.zeros(len(ids)), features, features @ self.form)

    def windows(self, params: AccuracyParams, count: int) -> list[AccuracyEstimate]:
        """Of one stream, each judged by itself."""
        stream = autoregressive(count * WINDOW, self.phi, self.rng)
        return [self.judged(params, part) for part in np.split(stream, count)]

    def judged(self, params: AccuracyParams, features: Floats) -> AccuracyEstimate:
        """One window by itself."""
        state, _ = step_many(params, AccuracyState.start(params), self.seen(features))
        found = latest(params, state)
        assert found is not None
        return found
