"""Clients whose weights changed in the same direction drifted alike: cosines, cut at a fixed value."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from server_bridge.cohorts.bases import bases_of, comparable
from server_bridge.cohorts.clustering import average_linkage
from server_bridge.cohorts.cohorter import (
    ClientId,
    CohortAssignment,
    CohortContext,
    Cohorter,
    check_clients,
    number_groups,
)
from server_bridge.cohorts.gram import gram_matrix

# Motion-sensor fleet, first round: means within a family 0.53-0.64, across families 0.07-0.25.
CUT = 0.35


class CosineCohorter(Cohorter):
    """Average linkage on the cosines of the changes from the weights that each client was sent.

    Groups join while their mean cosine is at least ``cut``. Clients that were sent different
    weights share a group only if those lie no further apart than ``base_tolerance`` times the
    shorter of the two changes, since a group begins with the average of its members' weights.
    A client whose weights did not change is like nobody else. Without a base in the context
    changes are measured from the reference.

    Args:
        cut: least mean cosine inside a group, in [-1, 1].
        base_tolerance: see above; 0 keeps clients of different bases apart.

    Raises:
        ValueError: ``cut`` outside [-1, 1] or a negative tolerance.

    Source: Sattler et al. 2021 for cosines of changes; the linkage and the cut are ours.
    Cost: O(n^2 d) time, O(n^2) memory beside the input.
    """

    def __init__(self, cut: float = CUT, base_tolerance: float = 1.0) -> None:
        if not -1 <= cut <= 1:
            raise ValueError(f"cut must lie in [-1, 1], not {cut}")
        if not base_tolerance >= 0:
            raise ValueError(f"base_tolerance must not be negative, it is {base_tolerance}")
        self.cut = cut
        self.base_tolerance = base_tolerance

    def cohort(
        self,
        ids: Sequence[ClientId],
        matrix: NDArray[Any],
        reference: NDArray[Any],
        *,
        context: CohortContext | None = None,
    ) -> CohortAssignment:
        """Group clients; see :meth:`Cohorter.cohort`."""
        ordered, rows, center = check_clients(ids, matrix, reference)
        bases = bases_of(ordered, center, context)
        gram = gram_matrix(rows, origins=bases)
        cosines = cosine_matrix(gram)
        groups: list[list[int]] = []
        for part in comparable(bases, np.sqrt(np.diag(gram)), self.base_tolerance):
            labels = average_linkage(1.0 - cosines[np.ix_(part, part)], 1.0 - self.cut)
            groups += [[part[i] for i in np.flatnonzero(labels == label)] for label in np.unique(labels)]
        return CohortAssignment(
            assignments=number_groups([[ordered[i] for i in group] for group in groups]),
            similarities={ordered[i]: _mean_cosine(cosines, i, group) for group in groups for i in group},
        )


def cosine_matrix(gram: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cosines in [-1, 1] from (n, n) inner products; a zero row has cosine 0 with every other, 1 with itself."""
    lengths = np.sqrt(np.diag(gram))
    inverse = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    cosines = np.clip(gram * inverse[:, None] * inverse[None, :], -1.0, 1.0)
    np.fill_diagonal(cosines, 1.0)
    return np.asarray(cosines, np.float64)


def _mean_cosine(cosines: NDArray[np.float64], row: int, group: list[int]) -> float:
    others = [i for i in group if i != row]
    return float(cosines[row, others].mean()) if others else 1.0
