"""Which losses are usual for new weights: those of their warm-up, but for what is too seldom for that to tell."""

import math

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.rises import LOSS_CAP
from edge_agent.drift.sequential.table import Distribution

SELDOM = 1 / 32
"""The share of the losses, the largest, that a warm-up leaves open: 8 of 256. Of a model that is wrong once in 180, 256
samples hold one mistake or none, and each later one would speak of a drift. The other losses are the new weights' own:
how sure a net is of what it gets right is another after each training, and beside the reference's that looks like a
rise of the half or the fifth that lie above a quantile."""
REFERENCE_PART = 3
"""Times the warm-up's largest losses that the reference's count beside them."""
BETTER = 2.0
"""Standard errors of the largest losses' sum by which it lies below the reference's where it shows a better level."""


def usual_losses(reference: Distribution, warmup: NDArray[np.float64], *, inflation: float) -> NDArray[np.float64]:
    """The losses that the next ones are compared with.

    The warm-up's alone where its ``SELDOM`` largest are together at least as large as the reference's, or plainly
    smaller: then the new weights are worse or better, and what is seldom is theirs too. In between the warm-up may have
    missed it: the reference's largest count beside its own.

    Args:
        reference: of the bundle.
        warmup: (n,) losses of new weights, >= 1 of them finite.
        inflation: of a mean's variance by the losses' autocorrelation.

    Returns:
        (n,), or (n + ``REFERENCE_PART`` n,): all but the largest of the warm-up as often as the reference counts.

    Cost: O(n log n).

    Measured after activations that change nothing but how sure the net is (a model wrong once in 180, the losses of
    what it gets right a quarter to ten times the reference's; threshold of 1e-4 a batch of 32, 600 streams of 52
    batches): 6e-5 to 1e-4 alarms a batch. With the warm-up alone 6e-4, with all of the reference beside it 0 to 8e-3.
    """
    ordered = np.sort(np.minimum(np.where(np.isfinite(warmup), warmup, LOSS_CAP), LOSS_CAP))
    largest = max(1, round(len(ordered) * SELDOM))
    theirs = reference.spread(REFERENCE_PART * len(ordered))
    seldom = theirs[-REFERENCE_PART * largest :]
    error = float(np.maximum(theirs - seldom[0], 0.0).std()) * math.sqrt(inflation / len(ordered))
    below = float(seldom.sum()) / len(theirs) - float(ordered[-largest:].sum()) / len(ordered)
    if not 0 < below < BETTER * error:
        return warmup
    body = ordered[:-largest]
    seldom = np.maximum(seldom, body[-1:].max(initial=0.0))  # no smaller than what is not seldom
    return np.concatenate([np.repeat(body, 1 + REFERENCE_PART), ordered[-largest:], seldom])
