"""How long the changes of one cohort are, and the shortening of what is far too long."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from server_bridge.aggregation.means import Tensors, like
from server_bridge.aggregation.screening import Refusal


@dataclass(frozen=True, slots=True)
class LengthRule:
    """When an update is shortened before its cohort's mean is formed.

    An update more than ``longest`` times as long as is usual is scaled to the usual length. Usual is
    the median length of the *other* updates of its cohort, but at least ``least`` of the median of
    the whole round: a gateway that still learns among others that have nothing left to learn is no
    outlier.

    Attributes:
        longest: honest updates of one cohort differ by less on the motion-sensor task (1.4 with as
            many samples each, 2.5 with an eighth of them); an update three times as long as honest
            ones, in their direction, already costs a cohort of three 6 points.
        least: share of the round's median.
    """

    longest: float = 2.0
    least: float = 0.5

    def factors(self, lengths: Sequence[float], round_median: float) -> list[float]:
        """What each change of a cohort is to be multiplied by; 1 for most.

        Args:
            lengths: of the cohort's changes, finite.
            round_median: the median length of all changes of the round.
        """
        if len(lengths) < 2:
            return [1.0] * len(lengths)
        ordered = np.sort(np.asarray(lengths, np.float64))
        usual = [max(_median_of_others(ordered, length), self.least * round_median) for length in lengths]
        return [
            at / length if at > 0 and length > self.longest * at else 1.0
            for length, at in zip(lengths, usual, strict=True)
        ]


def change_length(model: Tensors, base: Tensors) -> float:
    """The Euclidean length of ``model - base``, in float64."""
    changes = (np.subtract(model[name], base[name], dtype=np.float64).ravel() for name in base)
    return math.sqrt(sum(float(change @ change) for change in changes))


def scaled_change(model: Tensors, base: Tensors, factor: float) -> dict[str, NDArray[Any]]:
    """``base + factor (model - base)``, in the model's dtypes."""
    return {
        name: like(model[name], base[name] + factor * np.subtract(model[name], base[name], dtype=np.float64))
        for name in model
    }


def clipped_words(factor: float) -> Refusal:
    """How a shortened update is named; it counts, so that this is no refusal."""
    return Refusal(
        "clipped-update", f"{1 / factor:.3g} times as long as is usual in its cohort, counted at that length"
    )


def _median_of_others(ordered: NDArray[np.float64], length: float) -> float:
    """The median without one value of a sorted array that has it, in constant time."""
    place = int(np.searchsorted(ordered, length))
    left = len(ordered) - 1
    middle = [(left - 1) // 2, left // 2]
    return float(np.mean([ordered[at if at < place else at + 1] for at in middle]))
