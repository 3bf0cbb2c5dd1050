"""Two disjoint halves of a client's data, and how far their updates agree."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.wire.tensors import Weights

SPLIT_HALF_KEY = "clma-split-half"
LEAST_SAMPLES = 4


def halves(labels: NDArray[Any], seed: int) -> list[NDArray[np.intp]]:
    """Row numbers of two disjoint halves of equal size, drawn at random; none for fewer than four rows.

    Rows are dealt in turn in the order of their label, so that each half has its share of every
    class: a half without a class would tell of the draw and not of the drift.

    Args:
        labels: (n,) class numbers or targets.
        seed: of the draw.
    """
    if len(labels) < LEAST_SAMPLES:
        return []
    drawn = np.random.default_rng([seed, LEAST_SAMPLES]).permutation(len(labels))
    dealt = drawn[np.argsort(labels[drawn].reshape(-1), kind="stable")]
    pairs = dealt[: len(dealt) // 2 * 2]
    return [pairs[0::2], pairs[1::2]]


def cosine(left: Weights, right: Weights) -> float | None:
    """The cosine of two updates over all tensors, in float64; ``None`` if one is zero or not finite."""
    inner = sum(float((left[name].astype(np.float64) * right[name]).sum()) for name in left)
    lengths = [
        sum(float(np.square(tensor, dtype=np.float64).sum()) for tensor in side.values()) for side in (left, right)
    ]
    scale = math.sqrt(lengths[0] * lengths[1])
    if not (math.isfinite(scale) and math.isfinite(inner)) or scale == 0:
        return None
    return max(-1.0, min(1.0, inner / scale))
