"""The weights that clients were sent, and who may share a group by them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from server_bridge.cohorts.clustering import complete_linkage
from server_bridge.cohorts.cohorter import ClientId, CohortContext
from server_bridge.cohorts.gram import distance


def bases_of(ids: Sequence[ClientId], reference: NDArray[Any], context: CohortContext | None) -> list[NDArray[Any]]:
    """Each client's base, in the order of the ids; the reference where the context has none.

    Raises:
        ValueError: a base does not fit the reference.
    """
    known = (context.bases if context else None) or {}
    bases = [known.get(client, reference) for client in ids]
    for client, base in zip(ids, bases, strict=True):
        if base.shape != reference.shape or not np.isfinite(base).all():
            raise ValueError(f"the base weights of client {client} do not fit the reference")
    return bases


def comparable(bases: Sequence[NDArray[Any]], lengths: NDArray[np.float64], tolerance: float) -> list[list[int]]:
    """Clients whose bases agree.

    Two agree if their bases lie no further apart than ``tolerance`` times the shorter of the two
    changes: a group begins with the average of its members' weights, so changes that agree are
    not enough. Parts hold only clients that all agree.

    Args:
        bases: n vectors (d,); may be shared objects.
        lengths: (n,) L2 norms of the changes.
    """
    distinct = {id(base): base for base in bases}
    everybody = list(range(len(bases)))
    if len(distinct) < 2:
        return [everybody] if everybody else []
    apart = {(a, b): distance(distinct[a], distinct[b]) for a in distinct for b in distinct if a < b}
    disagree = np.zeros((len(bases), len(bases)))
    for i in everybody:
        for j in everybody[:i]:
            between = apart.get((min(id(bases[i]), id(bases[j])), max(id(bases[i]), id(bases[j]))), 0.0)
            disagree[i, j] = disagree[j, i] = float(between > tolerance * min(lengths[i], lengths[j]))
    labels = complete_linkage(disagree, 0.5)
    return [[int(i) for i in np.flatnonzero(labels == label)] for label in np.unique(labels)]
