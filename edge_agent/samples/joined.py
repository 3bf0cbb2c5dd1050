"""Labels on their way to the samples that they meet."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Joined:
    """Labels that meet their samples, in order.

    Attributes:
        arrivals, seqs: (n,) int64 arrival and insertion numbers.
        values: (n,) float64.
        whole: (n,) bool, whether a value is a class number.
    """

    arrivals: NDArray[np.int64]
    seqs: NDArray[np.int64]
    values: NDArray[np.float64]
    whole: NDArray[np.bool_]

    def only(self, chosen: NDArray[np.bool_]) -> "Joined":
        """Those that are chosen."""
        return Joined(self.arrivals[chosen], self.seqs[chosen], self.values[chosen], self.whole[chosen])

    def entries(self) -> list[tuple[int, int, float | int]]:
        """Arrival number, insertion number and label of each."""
        labels = [
            int(value) if whole else value
            for value, whole in zip(self.values.tolist(), self.whole.tolist(), strict=True)
        ]
        return list(zip(self.arrivals.tolist(), self.seqs.tolist(), labels, strict=True))
