"""From the updates of drifted clients to groups: what a cohorter is given."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from server_bridge.cohorts.cohorter import CohortAssignment, CohortContext, Cohorter
from server_bridge.cohorts.selectors import ParamSelector
from server_bridge.flower.updates import ClientUpdate


def assign(
    cohorter: Cohorter,
    selector: ParamSelector,
    movers: Sequence[ClientUpdate],
    updates: Sequence[ClientUpdate],
    reference: Mapping[str, NDArray[Any]],
) -> CohortAssignment:
    """Algorithm 3 on a round's updates.

    Args:
        cohorter: it; gets the context if it takes one.
        selector: the tensors that it compares.
        movers: the drifted clients' updates.
        updates: everybody's.
        reference: the reference model W.
    """
    ids = [update.client for update in movers]
    vector = selector.flatten(reference)
    matrix = np.empty((len(movers), vector.size), vector.dtype)
    for row, update in zip(matrix, movers, strict=True):
        row[:] = selector.flatten(update.params)
    if not takes_context(cohorter):
        return cohorter.cohort(ids, matrix, vector)
    return cohorter.cohort(ids, matrix, vector, context=_context(selector, movers, updates))


def _context(selector: ParamSelector, movers: Sequence[ClientUpdate], updates: Sequence[ClientUpdate]) -> CohortContext:
    moving = {update.client for update in movers}
    flat = {id(u.base): selector.flatten(u.base) for u in {id(u.base): u for u in updates}.values()}
    return CohortContext(
        bases={u.client: flat[id(u.base)] for u in movers},
        stable_changes={
            u.client: selector.flatten(u.params) - flat[id(u.base)] for u in updates if u.client not in moving
        },
        examples={u.client: u.examples for u in updates},
        former={u.client: u.cohort for u in movers},
        reliability={u.client: u.reliability for u in updates if u.reliability is not None},
        tensors=[np.size(movers[0].params[name]) for name in selector.select(movers[0].params)],
    )


def takes_context(cohorter: Cohorter) -> bool:
    """Whether a cohorter's ``cohort`` accepts ``context``; a three-argument one works without."""
    parameters = inspect.signature(cohorter.cohort).parameters.values()
    return any(p.name == "context" or p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)


def groups_of(assignment: CohortAssignment, movers: Sequence[ClientUpdate]) -> list[list[ClientUpdate]]:
    """The movers by their group, in the order of each group's smallest client."""
    groups: dict[int, list[ClientUpdate]] = {}
    for update in movers:
        groups.setdefault(assignment.assignments[update.client], []).append(update)
    return sorted(groups.values(), key=lambda members: members[0].client)
