"""How good named weights are on labelled samples."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.losses import sample_losses, sample_right
from edge_agent.model.head import HeadModel
from edge_agent.model.inference import InferenceModel
from edge_agent.wire.manifest import Manifest

BLOCK_ROWS = 64
CANDIDATE_KEY = "clma-candidate"  # in an order's config: is this cohort's model good for a gateway that drifted?


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Totals over n labelled samples.

    Attributes:
        loss: mean loss, unclipped; NaN for n = 0.
        accuracy: share of right predictions; None for a regression.
        loss_error: standard error of the loss; NaN for n < 2.
    """

    samples: int
    loss: float
    accuracy: float | None
    loss_error: float = float("nan")

    def metrics(self) -> dict[str, int | float]:
        """As they are reported; an undefined loss or accuracy is left out."""
        metrics: dict[str, int | float] = {"num-examples": self.samples}
        if np.isfinite(self.loss):
            metrics["loss"] = self.loss
        if np.isfinite(self.loss_error):
            metrics["loss-error"] = self.loss_error
        if self.accuracy is not None and self.samples > 0:
            metrics["accuracy"] = self.accuracy
        return metrics


def evaluate(
    model: InferenceModel | HeadModel, manifest: Manifest, features: Mapping[str, NDArray[Any]], labels: NDArray[Any]
) -> Evaluation:
    """Mean loss and accuracy of a model.

    Args:
        manifest: says which loss, and whether there are classes.
        features: (n, ...) by input name; for a head the embedding by its name.
        labels: (n,) class numbers or values.

    Raises:
        DataError: features or labels do not fit the model.

    Cost: blocks of 64 rows; the outputs of one block at a time.
    """
    return scores(model, manifest, features, labels).mean()


@dataclass(frozen=True, slots=True)
class Scores:
    """How good a model was on each of n labelled samples.

    Attributes:
        losses: (n,) float64, unclipped.
        right: (n,) bool; None for a regression.
        errors: (n,) float64, the absolute differences from the targets; None for a classification.
    """

    losses: NDArray[np.float64]
    right: NDArray[np.bool_] | None
    errors: NDArray[np.float64] | None

    def rows(self, chosen: NDArray[np.bool_]) -> "Scores":
        """Of some of the samples."""
        right = None if self.right is None else self.right[chosen]
        errors = None if self.errors is None else self.errors[chosen]
        return Scores(self.losses[chosen], right, errors)

    def mean(self) -> Evaluation:
        """Over all samples."""
        count = len(self.losses)
        accuracy = float(self.right.mean()) if self.right is not None and count else None
        loss = float(self.losses.mean()) if count else float("nan")
        with np.errstate(invalid="ignore"):
            error = float(self.losses.std(ddof=1) / np.sqrt(count)) if count > 1 else float("nan")
        return Evaluation(count, loss, accuracy, error)


def scores(
    model: InferenceModel | HeadModel, manifest: Manifest, features: Mapping[str, NDArray[Any]], labels: NDArray[Any]
) -> Scores:
    """A model's loss and rightness, sample by sample.

    Args, raises and cost: as :func:`evaluate`.
    """
    count = len(labels)
    losses, right, errors = np.zeros(count), np.zeros(count, np.bool_), np.zeros(count)
    for rows in _blocks(count):
        block = {name: array[rows] for name, array in features.items()}
        output = model.run(block, [model.primary])[model.primary]
        losses[rows] = sample_losses(manifest.loss, output, labels[rows], delta=manifest.huber_delta)
        if manifest.kind == "classification":
            right[rows] = sample_right(manifest.kind, output, labels[rows])
        else:
            errors[rows] = sample_losses("mae", output, labels[rows])
    return Scores(losses, right, None) if manifest.kind == "classification" else Scores(losses, None, errors)


def _blocks(count: int) -> Iterator[slice]:
    for start in range(0, count, BLOCK_ROWS):
        yield slice(start, start + BLOCK_ROWS)
