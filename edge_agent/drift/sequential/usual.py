"""Which losses are usual for new weights: those of their warm-up, and what these leave open is the reference's."""

import math

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.rises import LOSS_CAP
from edge_agent.drift.sequential.table import Distribution

REFERENCE_PART = 3
"""Times the warm-up's samples that the reference counts beside them. 256 samples of a model that is wrong once in 180
hold one mistake or none, and each later one would speak of a drift. Measured on such losses, three references of 800
rows, threshold aimed at 2e-3 a batch of 32: 7e-4 to 2.5e-3 alarms a batch without, 0 to 5e-4 with it, as before any
activation; counted once only, up to 1.9e-3."""
BETTER = 2.0
"""Standard errors of the warm-up's mean by which it lies below the reference's where it shows a better level."""


def usual_losses(reference: Distribution, warmup: NDArray[np.float64], *, inflation: float) -> NDArray[np.float64]:
    """The losses that the next ones are compared with.

    The warm-up's alone where its mean is at least the reference's, or plainly below it: then the new weights are worse
    or better, and the level is theirs. In between it may have missed what happens seldom: the reference counts too.

    Args:
        reference: of the bundle.
        warmup: (n,) losses of new weights, >= 1 of them finite.
        inflation: of a mean's variance by the losses' autocorrelation.

    Returns:
        (n,) or (n + ``REFERENCE_PART`` n,).

    Cost: O(n log bins).
    """
    finite = np.minimum(warmup[np.isfinite(warmup)], LOSS_CAP)
    below = reference.mean - float(finite.mean())
    if not 0 < below < BETTER * reference.deviation * math.sqrt(inflation / len(finite)):
        return warmup
    return np.concatenate([warmup, reference.spread(REFERENCE_PART * len(warmup))])
