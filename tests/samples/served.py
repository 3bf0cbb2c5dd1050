"""Batches and predictions for tests of the store."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_agent.samples.record import SampleBatch
from edge_agent.wire.manifest import TensorSpec

INPUTS = [TensorSpec(name="x", dtype="float32", shape=["n", 2, 3]), TensorSpec(name="k", dtype="int64", shape=["n"])]
CLASSES = 4


@dataclass(frozen=True)
class Predictions:
    """What a model said."""

    outputs: NDArray[np.float32]
    bundle: str = "b" * 64
    weights: str = "a" * 64
    version: int = 1
    cohort: str = "root"


def batch(
    *numbers: int, groups: list[str | None] | None = None, holdouts: list[bool] | None = None, prefix: str = "s"
) -> SampleBatch:
    """Samples ``s<number>`` whose features tell their number."""
    n = len(numbers)
    return SampleBatch(
        ids=[f"{prefix}{number}" for number in numbers],
        times=[float(number) for number in numbers],
        features={
            "x": np.array(numbers, dtype=np.float32)[:, None, None] + np.zeros((n, 2, 3), dtype=np.float32),
            "k": np.array(numbers, dtype=np.int64),
        },
        groups=groups or [None] * n,
        holdouts=holdouts or [False] * n,
    )


def predictions(n: int, *, right: int = 0, weights: str = "a" * 64) -> Predictions:
    """Logits that speak for class ``right``."""
    outputs = np.zeros((n, CLASSES), dtype=np.float32)
    outputs[:, right] = 5.0
    return Predictions(outputs, weights=weights)
