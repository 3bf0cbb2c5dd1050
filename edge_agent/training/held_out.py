"""Whether an update made things worse, judged on samples that it was not trained on."""

import math
from dataclasses import dataclass

import numpy as np

from edge_agent.training.evaluation import Scores

LEAST_SAMPLES = 10
"""Fewer held-out samples judge nothing: the error of their spread is too large."""
STANDARD_ERRORS = 3.0
"""A rise within so many is noise: windows of one recording are no independent samples, two would be too few."""
LEAST_RISE = 0.02
"""A classifier's loss may rise by so much as long as no fewer samples come out right: at 0.0001 any step is a rise."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The same held-out samples under the base weights and under the trained ones."""

    before: Scores
    after: Scores

    @property
    def samples(self) -> int:
        """How many."""
        return len(self.before.losses)

    @property
    def made_worse(self) -> bool:
        """Whether the loss rose beyond noise and the accuracy, if there is one, did not rise.

        Beyond noise: by more than three standard errors of the mean of the samples' own rises (paired), on at
        least ten samples. A loss that rises while more samples come out right tells of a surer model, not of a
        worse one; while as many do, it must rise by more than 0.02. A trained loss that is not finite where the
        base's was is worse.
        """
        if self.samples < LEAST_SAMPLES:
            return False
        with np.errstate(invalid="ignore"):
            rises = self.after.losses - self.before.losses
            rise, error = float(rises.mean()), float(rises.std(ddof=1)) / math.sqrt(self.samples)
        if not math.isfinite(rise):
            return bool(np.isfinite(self.before.losses).all())
        gained = self._gained
        trifle = gained is not None and (gained > 0 or (gained == 0 and rise <= LEAST_RISE))
        return rise > STANDARD_ERRORS * error and not trifle

    @property
    def _gained(self) -> int | None:
        """How many more samples come out right; None for a regression."""
        if self.before.right is None or self.after.right is None:
            return None
        return int(self.after.right.sum()) - int(self.before.right.sum())

    def words(self) -> str:
        """What happened, for people."""
        before, after = self.before.mean(), self.after.mean()
        told = f"the loss on {self.samples} held-out samples went from {before.loss:.4g} to {after.loss:.4g}"
        if before.accuracy is not None and after.accuracy is not None:
            told += f", the accuracy from {before.accuracy:.3f} to {after.accuracy:.3f}"
        return told

    def metrics(self) -> dict[str, int | float]:
        """As they travel with the update; what is undefined is left out."""
        metrics: dict[str, int | float] = {"proof-examples": self.samples}
        if self.samples == 0:
            return metrics
        for when, scores in (("before", self.before), ("after", self.after)):
            mean = scores.mean()
            if math.isfinite(mean.loss):
                metrics[f"proof-loss-{when}"] = mean.loss
            if mean.accuracy is not None:
                metrics[f"proof-accuracy-{when}"] = mean.accuracy
            if scores.errors is not None and np.isfinite(scores.errors).all():
                metrics[f"proof-mae-{when}"] = float(scores.errors.mean())
        metrics["made-worse"] = int(self.made_worse)
        return metrics
