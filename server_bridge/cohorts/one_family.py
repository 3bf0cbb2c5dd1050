"""What one family looks like: draws of it, to hold a split against."""

from collections.abc import Iterator

import numpy as np

from server_bridge.cohorts.blocks import Similarities, best_split
from server_bridge.cohorts.evidence import Matrix

# Up to so many clients, so many draws, of which so many may reach a split that is still believed: 1 in 100 each, and
# beyond 1 in 40. Few draws make the verdict itself a matter of chance: of 99, one reached what 2 in 1,000 reach.
DRAWS = ((20, 499, 4), (60, 99, 0))
DRAWS_LARGE = (39, 0)
# Few clients cannot tell a noise of very few directions from families; then no fewer than these are believed.
FEW = 10
LEAST_DIRECTIONS = 16
MOST_DIRECTIONS = 2_000


def beyond_one_family(similar: Similarities, gain: float) -> bool:
    """Whether hardly a draw of one family of the same mean and scatter reaches the gain.

    The level is 1 in 100 (1 in 40 for more than 60 clients), whatever the noise's rank: the
    number of directions of the noise is taken from the scatter of the similarities themselves.

    Source: parametric bootstrap; ours. The draws repeat for the same number of clients.
    """
    count = len(similar.values)
    rng = np.random.default_rng(count)
    share = np.sqrt(np.outer(similar.reliability, similar.reliability))
    draws, allowed = next(((draws, allowed) for most, draws, allowed in DRAWS if count <= most), DRAWS_LARGE)
    reached = 0
    for cosines in one_family(similar, rng, draws):
        drawn = Similarities(cosines / share, similar.weights, similar.floor, similar.reliability)
        reached += best_split(drawn).gain >= gain
        if reached > allowed:
            return False
    return True


def one_family(similar: Similarities, rng: np.random.Generator, draws: int) -> Iterator[Matrix]:
    """Cosines of one family with the mean and the scatter of the given similarities."""
    count = len(similar.values)
    pairs = np.triu_indices(count, 1)
    share = np.sqrt(np.outer(similar.reliability, similar.reliability))
    mean = max(0.0, float(np.average(similar.values[pairs], weights=similar.weights[pairs])))
    signal = np.clip(mean * similar.reliability, 0.0, 0.98)
    noise = np.sqrt(np.outer(1.0 - signal, 1.0 - signal))[pairs]
    residual = (similar.values * share - mean * share)[pairs]
    variance = float(np.square(residual).mean() / np.square(noise).mean())
    least = LEAST_DIRECTIONS if count <= FEW else 2
    directions = int(np.clip(round(1.0 / max(variance, 1e-9)), least, MOST_DIRECTIONS))
    for _ in range(draws):
        rows = rng.standard_normal((count, directions)) * np.sqrt((1.0 - signal) / directions)[:, None]
        rows = np.concatenate([np.sqrt(signal)[:, None], rows], axis=1)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        yield rows @ rows.T
