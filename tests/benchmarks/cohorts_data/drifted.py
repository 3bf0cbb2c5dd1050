"""Clients with known families, as a cohorter sees them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from server_bridge.cohorts.cohorter import CohortContext


@dataclass(frozen=True, slots=True)
class Drifted:
    """One draw of drifted clients.

    Attributes:
        changes: (n, d) float32, each client's weights minus the base that it was sent.
        families: (n,) true family numbers.
        reliability: (n,) split-half cosines, where they were measured.
        stable: (m, d) float32 changes of clients that did not drift; none if m is 0.
        examples: (n,) training examples of each client.
        tensors: sizes of the layers that the d parameters are, in their order; empty where there are none.
    """

    changes: NDArray[np.float32]
    families: NDArray[np.intp]
    reliability: NDArray[np.float64] | None = None
    stable: NDArray[np.float32] | None = None
    examples: NDArray[np.float64] | None = None
    tensors: Sequence[int] = ()

    def context(self) -> CohortContext:
        """All of the optional context that is known."""
        rows = range(len(self.changes))
        base = np.zeros(self.changes.shape[1], np.float32)
        known, stable, examples = self.reliability, self.stable, self.examples
        return CohortContext(
            bases=dict.fromkeys(rows, base),
            stable_changes=None if stable is None else {-1 - i: row for i, row in enumerate(stable)},
            examples=None if examples is None else {i: float(examples[i]) for i in rows},
            reliability=None if known is None else {i: float(known[i]) for i in rows},
            tensors=self.tensors,
        )


def adjusted_rand(left: NDArray[np.intp], right: NDArray[np.intp]) -> float:
    """The adjusted Rand index of two labelings of the same n clients: 1 if equal, 0 as by chance.

    Source: Hubert and Arabie 1985, eq. 5; 1 where both are all-in-one or both all-apart.
    """
    table = np.zeros((left.max() + 1, right.max() + 1))
    np.add.at(table, (left, right), 1)
    together = (table * (table - 1) / 2).sum()
    rows, columns = table.sum(1), table.sum(0)
    in_rows, in_columns = (rows * (rows - 1) / 2).sum(), (columns * (columns - 1) / 2).sum()
    pairs = len(left) * (len(left) - 1) / 2
    expected = in_rows * in_columns / pairs if pairs else 0.0
    most = (in_rows + in_columns) / 2
    return 1.0 if most == expected else float((together - expected) / (most - expected))
