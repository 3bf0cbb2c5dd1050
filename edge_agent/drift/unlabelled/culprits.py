"""Which channels a change of the scores comes from: few that explain it, not all that it shows in.

A sensor that drifts moves the conditional scores of all that depend on it, and hardly anything in its own marginal
where it is one of many alike. So channels are chosen one by one: the one whose free change explains most, then the one
that explains most of what is left. Three likelihood ratios are added up for it: of the mean since the change began; of
the rows of the latest batch, each of which may be off in its own way (noise, another scale); and of the mean squares
since the change, by what noise in one channel does to the variances of all conditional scores, which sees noise too
weak for one batch.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST = 8
_LEAST_SHARE = 0.0005
_LEAST_GAIN = 8.0
_SATURATED = 3.0
_LEAST_FALL = 4.0
"""Squared deviations, of one batch, that a channel's squares must have fallen by for rows that are more alike than
usual to say something: constants and rare switches stand still in most batches."""
_TINY = 1e-12


@dataclass(frozen=True, slots=True)
class Culprit:
    """A channel that changed.

    Attributes:
        channel: its number.
        level_gain, spread_gain: what its change of level, of spread, explains: likelihood ratios, doubled.
    """

    channel: int
    level_gain: float
    spread_gain: float

    @property
    def gain(self) -> float:
        """Both together."""
        return self.level_gain + self.spread_gain


@dataclass(frozen=True, slots=True)
class Moved:
    """How the scores of c channels changed.

    Attributes:
        location: (c,) of the mean normal scores, since the change.
        square: (c,) of the mean clipped squares of the conditional scores, since the change.
        rows: samples since the change.
        latest: (n, c) the normal scores of the latest batch, less their level.
        precision: (c, c) inverse covariance of the normal scores.
        deviation, square_deviation: (c,) of a row's conditional score and its square in the reference.
    """

    location: NDArray[np.float64]
    square: NDArray[np.float64]
    rows: float
    latest: NDArray[np.float64]
    precision: NDArray[np.float64]
    deviation: NDArray[np.float64]
    square_deviation: NDArray[np.float64]


def culprits(moved: Moved) -> list[Culprit]:
    """The channels that explain a change, the most important first; at most 8.

    Two channels are chosen as the best of all pairs, since of three that say the same the one that stayed looks like
    the only one that changed. What one of them explains is what the other cannot; what a later one explains, what all
    before it cannot.

    Source: forward selection by likelihood ratio; ours.
    Cost: O(n c^2 + 8 c^2).
    """
    evidence = _Evidence.of(moved)
    found = _first(evidence)
    while found and len(found) < min(MOST, len(moved.location)):
        chosen = [culprit.channel for culprit in found]
        best = evidence.best(chosen)
        if best.gain < max(_LEAST_GAIN, _LEAST_SHARE * found[0].gain):
            break
        found.append(best)
    return sorted(found, key=lambda culprit: -culprit.gain)


def _first(evidence: "_Evidence") -> list[Culprit]:
    """None, the best one, or the best two where each explains enough that the other cannot."""
    one = evidence.best([])
    if one.gain < _LEAST_GAIN:
        return []
    channels = evidence.best_pair(one.channel)
    pair = [evidence.beyond([channels[1 - place]], channel) for place, channel in enumerate(channels)]
    least = max(_LEAST_GAIN, _LEAST_SHARE * one.gain)
    return pair if len(pair) == 2 and min(pair[0].gain, pair[1].gain) >= least else [one]


@dataclass(frozen=True)
class _Evidence:
    """Standardised pulls: what a change of each channel would explain, and how those overlap.

    Attributes:
        mean: (c,) the pull of the mean, of deviation 1 without a change but for the root of the rows.
        spread: (c, c) covariance of the latest rows' pulls; what is usual, of channels that may be still by chance.
        overlap: (c, c) their covariance without a change: correlations.
        noise: (c,) change of the squares less what the mean explains; empty where the squares are at their cap.
        noise_deviation: (c,) of a row's square.
        rows, latest: samples since the change, and of the latest batch.
    """

    mean: NDArray[np.float64]
    spread: NDArray[np.float64]
    overlap: NDArray[np.float64]
    noise: NDArray[np.float64]
    noise_deviation: NDArray[np.float64]
    rows: float
    latest: int

    @classmethod
    def of(cls, moved: Moved) -> "_Evidence":
        roots = np.sqrt(np.diag(moved.precision))
        left = moved.precision @ moved.location / roots
        pulls = (moved.latest @ moved.precision) / (roots * moved.deviation)
        pulls -= pulls.mean(axis=0)
        unsaturated = bool(np.abs(moved.square).max() < _SATURATED)
        overlap = moved.precision / np.outer(roots, roots)
        spread = pulls.T @ pulls / len(pulls)
        fall = len(pulls) * np.square(np.minimum(moved.square, 0.0) / moved.square_deviation)
        still = (np.diag(spread) < 1.0) & (fall < _LEAST_FALL)
        return cls(
            mean=left / moved.deviation,
            spread=np.where(still | still[:, None], overlap, spread),
            overlap=overlap,
            noise=moved.square - np.square(left) if unsaturated else np.zeros(0),
            noise_deviation=moved.square_deviation,
            rows=moved.rows,
            latest=len(pulls),
        )

    def best(self, chosen: list[int]) -> Culprit:
        """The channel that explains most beyond the chosen ones."""
        level, spread = self._beyond(chosen)
        gain = level + spread
        gain[chosen] = -1.0
        channel = int(np.argmax(gain))
        return Culprit(channel, float(level[channel]), float(spread[channel]))

    def beyond(self, chosen: list[int], channel: int) -> Culprit:
        """What this channel explains beyond the chosen ones."""
        level, spread = self._beyond(chosen)
        return Culprit(channel, float(level[channel]), float(spread[channel]))

    def best_pair(self, single: int) -> tuple[int, ...]:
        """The two channels that explain most together; none where those explain hardly more than ``single``."""
        free = np.maximum(1.0 - np.square(self.overlap), _TINY)
        np.fill_diagonal(free, np.inf)
        level = self.rows * _of_pairs(np.outer(self.mean, self.mean), self.overlap, free)
        own = np.diag(self.spread)
        trace = _of_pairs(self.spread, self.overlap, free)
        size = np.maximum((np.outer(own, own) - np.square(self.spread)) / free, _TINY)
        gain = level + self.latest * (trace - 2.0 - np.log(size))
        np.fill_diagonal(gain, -np.inf)
        one, two = np.unravel_index(int(np.argmax(gain)), gain.shape)
        alone = self.rows * self.mean[single] ** 2 + self.latest * (own[single] - 1.0 - np.log(max(own[single], _TINY)))
        return (int(one), int(two)) if gain[one, two] >= alone + _LEAST_GAIN else ()

    def _beyond(self, chosen: list[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What each channel's change of mean, and of its single rows, explains once the chosen ones have theirs."""
        mean, own, free = self.mean, np.diag(self.spread), np.ones(len(self.mean))
        if chosen:
            across = np.linalg.solve(self.overlap[np.ix_(chosen, chosen)], self.overlap[chosen])
            mean = mean - mean[chosen] @ across
            shared = self.spread[chosen]
            own = own - 2.0 * np.einsum("sc,sc->c", across, shared)
            own = own + np.einsum("sc,st,tc->c", across, shared[:, chosen], across)
            free = np.maximum(1.0 - np.einsum("sc,sc->c", self.overlap[chosen], across), _TINY)
        ratio = np.maximum(own / free, _TINY)
        spread = self.latest * (ratio - 1.0 - np.log(ratio))
        if len(self.noise):
            spread = spread + self.rows * np.square(self._noise_left(chosen) / self.noise_deviation)
        return self.rows * np.square(mean) / free, spread

    def _noise_left(self, chosen: list[int]) -> NDArray[np.float64]:
        """(c,) change of the squares that noise of the chosen channels does not explain."""
        if not chosen:
            return self.noise
        partial = np.square(self.overlap[:, chosen])
        strength = np.linalg.lstsq(partial[chosen], self.noise[chosen], rcond=None)[0]
        return np.asarray(self.noise - partial @ strength)


def _of_pairs(
    products: NDArray[np.float64], overlap: NDArray[np.float64], free: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(c, c) squared length of each pair of pulls, by their own correlation."""
    own = np.diag(products)
    return np.asarray((own[:, None] + own - 2.0 * overlap * products) / free)
