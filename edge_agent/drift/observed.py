"""What monitors are shown: samples as they were served, and samples whose labels have come."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Observed:
    """Samples in the order in which they were served, all by the same weights; labels are not needed.

    Attributes:
        ids: n sample ids.
        times_s: (n,) float64, when they were measured; may repeat, run backwards or jump.
        features: (n, f) float, the inputs in the manifest's order, each flattened; may hold non-finite numbers.
        outputs: (n, k) the primary output: logits of k classes, one logit of class 1 (k = 1), or values.
        embeddings: (n, d) output of role embedding; None: the model gives none.
        faulty: (n, f) bool, readings that are taken for broken and left out of judgement; None: none is.
        finite: the features are known to be, but where faulty: nothing has to look for others.
    """

    ids: list[str]
    times_s: NDArray[np.float64]
    features: NDArray[Any]
    outputs: NDArray[Any]
    embeddings: NDArray[Any] | None = None
    faulty: NDArray[np.bool_] | None = None
    finite: bool = False

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, start: int, stop: int) -> "Observed":
        """Rows ``start`` to before ``stop``: views."""
        some = slice(start, stop)
        return Observed(
            self.ids[some],
            self.times_s[some],
            self.features[some],
            self.outputs[some],
            None if self.embeddings is None else self.embeddings[some],
            None if self.faulty is None else self.faulty[some],
            self.finite,
        )


@dataclass(frozen=True, slots=True)
class Labelled:
    """Samples in the order in which their labels came, all served by the same weights.

    Attributes:
        ids: n sample ids.
        times_s: (n,) float64, when the samples were measured.
        losses: (n,) float64, >= 0, ``inf`` where the output was not finite (``drift.losses.sample_losses``).
        delays_s: (n,) float64 from the sample's serving to its label, by the running clock; NaN: unknown.
    """

    ids: list[str]
    times_s: NDArray[np.float64]
    losses: NDArray[np.float64]
    delays_s: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, start: int, stop: int) -> "Labelled":
        """Rows ``start`` to before ``stop``: views."""
        some = slice(start, stop)
        return Labelled(self.ids[some], self.times_s[some], self.losses[some], self.delays_s[some])


def all_finite(numbers: NDArray[Any]) -> bool:
    """Whether all are: one that is not makes a sum so, as large ones may; only then is each looked at."""
    with np.errstate(over="ignore", invalid="ignore"):
        return math.isfinite(np.add.reduce(numbers, axis=None)) or bool(np.isfinite(numbers).all())
