"""What a Fed-ADE signal is without a shift, and at a reference shift; taken from held-out data."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import DataError

REFERENCE_DRAWS = 64
LEAST_REFERENCE = 1e-6
_TINY = 1e-12  # a mean of this length has no direction


@dataclass(frozen=True, slots=True)
class SignalScale:
    """The scale of one signal.

    Args:
        spread: variance of a sample's vector across the mean, over the mean's squared length, >= 0: without a shift
            the cosine of batches of n and m is about 1 / sqrt((1 + spread / n)(1 + spread / m)).
        reference: one minus the cosine at the reference shift, in (0, 2].
    """

    spread: float
    reference: float

    def __post_init__(self) -> None:
        """Refuse values outside their range, by name."""
        if not (math.isfinite(self.spread) and self.spread >= 0):
            raise DataError(f"fed-ade: spread = {self.spread} is not zero or more")
        if not 0 < self.reference <= 2:
            raise DataError(f"fed-ade: reference = {self.reference} is outside (0, 2]")

    def expected(self, size: float, before: float) -> float:
        """One minus the cosine that is expected of two batches without a shift.

        Args:
            size, before: samples in each, > 0.

        Source: ours; to second order in the noise of the means.
        """
        return 1.0 - 1.0 / math.sqrt((1.0 + self.spread / size) * (1.0 + self.spread / before))

    def scaled(self, distance: float, size: float, before: float) -> float:
        """One minus a cosine, brought to 0 without a shift and 1 at the reference shift or beyond."""
        return min(1.0, max(0.0, (distance - self.expected(size, before)) / self.reference))


def calibrate_signal(vectors: NDArray[Any], labels: NDArray[Any], rng: "np.random.Generator") -> SignalScale | None:
    """The scale of a signal from held-out samples; the reference shift is that half of the classes stay away.

    Args:
        vectors: (n, d) class probabilities, or embeddings of length one.
        labels: (n,) class numbers; a regression's targets are cut at their quartiles into four classes.
        rng: draws which classes stay away, 64 times.

    Returns: ``None`` where the mean has no direction, or that shift does not turn it: the signal then says nothing.

    Raises:
        DataError: fewer than two finite rows, or rows and labels that do not agree.

    Cost: O(n d + 64 classes d).
    """
    if vectors.ndim != 2 or len(vectors) != len(labels):
        raise DataError(f"fed-ade: vectors {list(vectors.shape)} and {len(labels)} labels do not fit")
    finite = np.isfinite(vectors).all(axis=1)
    kept, groups = vectors[finite].astype(np.float64), _groups(labels)[finite]
    if len(kept) < 2:
        raise DataError(f"fed-ade: {len(kept)} finite held-out rows cannot calibrate", "give at least two")
    mean = kept.mean(axis=0)
    length = float(mean @ mean)
    if length < _TINY:
        return None
    centred = kept - mean
    along = centred @ mean / math.sqrt(length)
    across = float(np.square(centred).sum() - np.square(along).sum()) / (len(kept) - 1)
    reference = _reference(kept, groups, mean, rng)
    return SignalScale(max(0.0, across) / length, reference) if reference > LEAST_REFERENCE else None


def directions(embeddings: NDArray[Any]) -> NDArray[np.float64]:
    """(n, d) embeddings flattened a row and brought to length one; one of length zero stays zero."""
    flat = np.asarray(embeddings, np.float64).reshape(len(embeddings), -1) if len(embeddings) else np.zeros((0, 1))
    # a row's largest value is taken out first: squares of large values would overflow
    largest = np.abs(flat).max(axis=1, keepdims=True, initial=0.0)
    unit = np.divide(flat, largest, out=np.zeros_like(flat), where=largest > 0)
    lengths = np.sqrt(np.square(unit).sum(axis=1, keepdims=True))
    return np.asarray(np.divide(unit, lengths, out=unit, where=lengths > 0))


def cosine_distance(left: NDArray[np.float64], right: NDArray[np.float64]) -> float | None:
    """One minus the cosine, in [0, 2]; ``None`` where either has no direction."""
    lengths = float(np.linalg.norm(left)), float(np.linalg.norm(right))
    if min(lengths) < _TINY:
        return None
    return min(2.0, max(0.0, 1.0 - float(left @ right) / (lengths[0] * lengths[1])))


def _groups(labels: NDArray[Any]) -> NDArray[np.int64]:
    if labels.dtype.kind in "iu":
        return np.unique(labels, return_inverse=True)[1].astype(np.int64)
    return np.searchsorted(np.quantile(labels, [0.25, 0.5, 0.75]), labels).astype(np.int64)


def _reference(
    vectors: NDArray[np.float64], groups: NDArray[np.int64], mean: NDArray[np.float64], rng: "np.random.Generator"
) -> float:
    """The mean turn of the mean when half of the groups stay away."""
    count = int(groups.max()) + 1
    if count < 2:
        return 0.0
    sums = np.zeros((count, vectors.shape[1]))
    np.add.at(sums, groups, vectors)
    turns = []
    for _ in range(REFERENCE_DRAWS):
        stay = rng.permutation(count)[: count // 2]
        turns.append(cosine_distance(sums[stay].sum(axis=0), mean) or 0.0)
    return float(np.mean(turns))
