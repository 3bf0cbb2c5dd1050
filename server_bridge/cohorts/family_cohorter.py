"""Drifted clients grouped by evidence: errors and draws of one family instead of a fixed cut."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from server_bridge.cohorts.bases import bases_of, comparable
from server_bridge.cohorts.cohorter import (
    ClientId,
    CohortAssignment,
    CohortContext,
    Cohorter,
    check_clients,
    number_groups,
)
from server_bridge.cohorts.evidence import Evidence, measure
from server_bridge.cohorts.explaining import explain
from server_bridge.cohorts.families import Family, find_families, full_reliability

# Of the clients compared, so many must have told their reliability for it to be used.
LEAST_KNOWN = 0.5


class FamilyCohorter(Cohorter):
    """Groups clients whose changes are one family, as far as the data can tell; explains each decision.

    Changes are measured from the weights that each client was sent (the reference where the
    context has none). Clients that were sent different weights share a group only if these lie no
    further apart than ``base_tolerance`` times the shorter change. Stable clients' updates are
    not used: their noise is another, 2.6-3.5 times smaller on real data.

    Args:
        base_tolerance: see above; 0 keeps clients of different bases apart.

    Raises:
        ValueError: a negative tolerance.

    Source: ours; see docs/cohorting.md for the rules, their level and their power.
    Cost: O(n^2 d) time for one pass over the matrix, O(n^2) memory beside it; then 100 times O(n^3).
    """

    uses_reliability: ClassVar[bool] = True

    def __init__(self, base_tolerance: float = 1.0) -> None:
        if not base_tolerance >= 0:
            raise ValueError(f"base_tolerance must not be negative, it is {base_tolerance}")
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
        if not ordered:
            return CohortAssignment()
        bases = bases_of(ordered, center, context)
        evidence = measure(rows, bases, context.tensors if context else ())
        reliability = _reliability(ordered, context)
        families: list[Family] = []
        for part in comparable(bases, evidence.lengths, self.base_tolerance):
            families += _in_part(evidence, reliability, part)
        explanations = explain(ordered, evidence, reliability, families)
        return CohortAssignment(
            assignments=number_groups([[ordered[i] for i in family.rows] for family in families]),
            similarities={client: reason.similarity for client, reason in explanations.items()},
            explanations=explanations,
        )


def _in_part(evidence: Evidence, reliability: NDArray[np.float64] | None, part: list[int]) -> list[Family]:
    moved = np.array([i for i in part if evidence.lengths[i] > 0], np.intp)
    still = [Family(np.array([i], np.intp), "no-change", 0.0) for i in part if evidence.lengths[i] == 0]
    if len(moved) == 0:
        return still
    if len(moved) == 1:
        return [*still, Family(moved, "nobody-to-compare", 0.0)]
    found = find_families(evidence.among(moved), None if reliability is None else reliability[moved])
    return [*still, *(replace(family, rows=moved[family.rows]) for family in found)]


def _reliability(ids: Sequence[ClientId], context: CohortContext | None) -> NDArray[np.float64] | None:
    """Reliabilities in the order of the ids, the median where one is missing; ``None`` if most are."""
    known = (context.reliability if context else None) or {}
    halves = np.array([known.get(client, np.nan) for client in ids], np.float64)
    told = np.isfinite(halves)
    if told.sum() < max(1.0, LEAST_KNOWN * len(ids)):
        return None
    return full_reliability(np.where(told, halves, np.median(halves[told])))
