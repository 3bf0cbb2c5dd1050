"""Whether a model has anything to do with the labels that it is given."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from server_bridge.bundles.calibrate import Score

STANDARD_ERRORS = 2.0

HINT = (
    "as it should be before `server-bridge bundle fit`; else rows and labels are out of step, or classes are numbered "
    "otherwise than the model's outputs, and the drift monitor is calibrated to that"
)


def doubt(score: Score, labels: NDArray[Any]) -> str | None:
    """Why held-out data speak against the model, or ``None``.

    A classifier is doubted if it is right no more often than the most frequent class alone, by two
    standard errors, *and* its loss is no less than that of the classes' shares: rare classes, or
    probabilities that are off, are not enough.

    Args:
        score: of the model on the data.
        labels: (n,) of the data, n >= 1: class numbers, or targets.
    """
    if score.accuracy is None:
        spread = float(np.var(np.asarray(labels, np.float64)))
        if score.loss < spread:
            return None
        return (
            f"loss {score.loss:.4g} on {len(labels)} held-out rows; the mean of their labels alone gives {spread:.4g}"
        )
    shares = np.unique(labels, return_counts=True)[1] / len(labels)
    most = float(shares.max())
    error = float(np.sqrt(most * (1 - most) / len(labels)))
    if score.accuracy > most + STANDARD_ERRORS * error or score.loss < float(-(shares * np.log(shares)).sum()):
        return None
    return (
        f"accuracy {score.accuracy:.3f} on {len(labels)} held-out rows; the most frequent class alone gives {most:.3f}"
    )
