"""Which channels a change of the scores comes from: few that explain it, not all that it shows in.

A sensor that drifts moves the conditional scores of all that depend on it, and hardly anything in its own marginal
where it is one of many alike. So the channels are chosen one by one: the one whose change of level explains most of
the Mahalanobis distance, then the one that explains most of what is left; and likewise for changes of spread, by what
noise in one channel does to the variances of all conditional scores.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MOST = 8
_LEAST_SHARE = 0.03
_LEAST_GAIN = 12.0


@dataclass(frozen=True, slots=True)
class Culprit:
    """A channel that changed.

    Attributes:
        channel: its number.
        level_gain, spread_gain: how much its change of level, of spread, explains: likelihood ratios, doubled.
    """

    channel: int
    level_gain: float
    spread_gain: float

    @property
    def gain(self) -> float:
        """Both together."""
        return self.level_gain + self.spread_gain


def culprits(
    location: NDArray[np.float64],
    conditional_square: NDArray[np.float64],
    precision: NDArray[np.float64],
    rows: float,
    *,
    square_deviation: NDArray[np.float64],
) -> list[Culprit]:
    """The channels that explain a change, the most important first; at most 8.

    Args:
        location: (c,) change of the mean normal scores.
        conditional_square: (c,) change of the mean squares of the conditional scores.
        precision: (c, c) inverse covariance of the normal scores.
        rows: samples that the changes are means of.
        square_deviation: (c,) deviation of a row's conditional square.

    Source: forward selection by likelihood ratio; ours.
    Cost: O(8 c^2).
    """
    levels = _levels(location, precision, rows)
    diagonal = np.diag(precision)
    left = precision @ location / np.sqrt(diagonal)
    partial = np.square(precision) / np.outer(diagonal, diagonal)
    spreads = _spreads(conditional_square - np.square(left), partial, rows, square_deviation)
    found = [Culprit(c, levels.get(c, 0.0), spreads.get(c, 0.0)) for c in {*levels, *spreads}]
    found.sort(key=lambda culprit: -culprit.gain)
    largest = found[0].gain if found else 0.0
    return [culprit for culprit in found if culprit.gain >= _LEAST_SHARE * largest][:MOST]


def _levels(location: NDArray[np.float64], precision: NDArray[np.float64], rows: float) -> dict[int, float]:
    """Channel to gain, by the Mahalanobis distance that its own free change takes away."""
    diagonal, wanted = np.diag(precision), precision @ location
    chosen: list[int] = []
    gains: dict[int, float] = {}
    rest = wanted
    for _ in range(MOST):
        gain = rows * np.square(rest) / diagonal
        gain[chosen] = 0.0
        best = int(np.argmax(gain))
        if gain[best] < max(_LEAST_GAIN, _LEAST_SHARE * max(gains.values(), default=0.0)):
            break
        gains[best] = float(gain[best])
        chosen.append(best)
        shift = np.linalg.solve(precision[np.ix_(chosen, chosen)], wanted[chosen])
        rest = wanted - precision[:, chosen] @ shift
    return gains


def _spreads(
    change: NDArray[np.float64], partial: NDArray[np.float64], rows: float, deviation: NDArray[np.float64]
) -> dict[int, float]:
    """Channel to gain, by the squares that noise of its own would bring to all conditional scores."""
    chosen: list[int] = []
    gains: dict[int, float] = {}
    rest = change
    for _ in range(MOST):
        gain = rows * np.square(rest / deviation)
        gain[chosen] = 0.0
        best = int(np.argmax(gain))
        if gain[best] < max(_LEAST_GAIN, _LEAST_SHARE * max(gains.values(), default=0.0)):
            break
        gains[best] = float(gain[best])
        chosen.append(best)
        noise = np.linalg.lstsq(partial[np.ix_(chosen, chosen)], change[chosen], rcond=None)[0]
        rest = change - partial[:, chosen] @ noise
    return gains
