"""Cohorts that hold several concepts although nobody's loss has risen: their members' updates undo each other."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import structlog

from server_bridge.aggregation.screening import Refusal
from server_bridge.cohorts.cohorter import ClientId, Cohorter
from server_bridge.cohorts.evidence import Matrix
from server_bridge.cohorts.gram import gram_matrix
from server_bridge.cohorts.membership import CohortId
from server_bridge.cohorts.selectors import ParamSelector
from server_bridge.flower.regrouping import assign, groups_of
from server_bridge.flower.updates import ClientUpdate

MIXED_COHORT = "mixed-cohort"
LEAST_GROUP = 2
Groups = list[frozenset[ClientId]]

logger = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class MixtureRule:
    """When one model cannot serve a cohort.

    A model of several concepts that has come to rest is equally bad for all of them, before a change and after it, so
    that no loss rises and nobody flags. Its members' updates tell: each concept's agree, and what one does another
    undoes.

    Attributes:
        inside: least mean cosine of the updates in each group that the cohorter finds; of members of one concept it is
            small once their model fits, since what is left is noise.
        across: greatest mean cosine between the groups: at rest they cancel.
        looks: rounds in a row in which the same groups must be found.
        most: members; larger cohorts are not looked at, since finding groups costs their cube.

    Source: Sattler et al. 2020, CFL: at a stationary point of a cluster its members are split if they are incongruent;
        the cohorter, the cosines and the second look take the place of its two lengths and of the bipartition.
    """

    inside: float = 0.3
    across: float = 0.0
    looks: int = 2
    most: int = 200

    def holds(self, cosines: Matrix, labels: Sequence[int]) -> bool:
        """Whether groups of at least two agree inside and oppose each other."""
        groups = np.asarray(labels)
        same = groups[:, None] == groups[None, :]
        if same.all() or float(cosines[~same].mean()) > self.across:
            return False
        sizes = [int((groups == group).sum()) for group in np.unique(groups)]
        if min(sizes) < LEAST_GROUP:
            return False
        sums = [float(cosines[np.ix_(groups == group, groups == group)].sum()) for group in np.unique(groups)]
        return all((total - n) / (n * (n - 1)) >= self.inside for total, n in zip(sums, sizes, strict=True))


class MixtureWatch:
    """Looks at what stays in each cohort, round by round.

    Args:
        rule: when a cohort is mixed; ``None`` for never looking.
        cohorter: finds its groups.
        selector: the tensors that are compared.
    """

    def __init__(self, rule: MixtureRule | None, cohorter: Cohorter, selector: ParamSelector) -> None:
        self._rule, self._cohorter, self._selector = rule, cohorter, selector
        self._seen: dict[CohortId, list[Groups]] = {}

    def look(self, updates: Iterable[ClientUpdate]) -> dict[ClientId, Refusal]:
        """Who leaves a mixed cohort, and why; its largest group stays, of equal ones that with the lowest node id.

        Args:
            updates: of a round, of clients that stay in their cohorts.
        """
        if self._rule is None:
            return {}
        cohorts: dict[CohortId, list[ClientUpdate]] = {}
        for update in updates:
            cohorts.setdefault(update.cohort, []).append(update)
        leaving: dict[ClientId, Refusal] = {}
        for cohort, mine in cohorts.items():
            groups = self._groups(self._rule, mine)
            before = self._seen.get(cohort, [])
            again = groups and all(_alike(earlier, groups) for earlier in before)
            self._seen[cohort] = ([*before, groups] if again else [groups]) if groups else []
            if len(self._seen[cohort]) >= self._rule.looks:
                leaving |= _parted(cohort, groups)
                self._seen[cohort] = []
        return leaving

    def _groups(self, rule: MixtureRule, mine: Sequence[ClientUpdate]) -> Groups:
        """The groups of a mixed cohort; none if it is not."""
        if not 2 * LEAST_GROUP <= len(mine) <= rule.most:
            return []
        cosines = self._cosines(mine)
        if cosines.min() > rule.across or np.tril(cosines, -1).max() < rule.inside:
            return []  # as of most cohorts; no grouping could hold
        found = groups_of(assign(self._cohorter, self._selector, mine, mine, mine[0].base), mine)
        number = {update.client: number for number, group in enumerate(found) for update in group}
        if not rule.holds(cosines, [number[update.client] for update in mine]):
            return []
        return [frozenset(update.client for update in group) for group in found]

    def _cosines(self, rows: Sequence[ClientUpdate]) -> Matrix:
        flat = self._selector.flatten
        bases = {id(update.base): flat(update.base) for update in rows}
        gram = gram_matrix([flat(update.params) for update in rows], origins=[bases[id(u.base)] for u in rows])
        lengths = np.sqrt(np.clip(np.diag(gram), 0.0, None))
        scale = np.outer(lengths, lengths)
        cosines = np.divide(gram, scale, out=np.zeros_like(gram), where=scale > 0)
        np.fill_diagonal(cosines, 1.0)
        return np.asarray(cosines, np.float64)

    def forget(self, living: Iterable[CohortId]) -> None:
        """Let go of cohorts that are no more."""
        names = set(living)
        self._seen = {cohort: seen for cohort, seen in self._seen.items() if cohort in names}

    def clear(self) -> None:
        """Forget all: an adaptation has ended."""
        self._seen.clear()

    def export(self) -> dict[str, Any]:
        """JSON values."""
        return {
            cohort: [[sorted(group) for group in groups] for groups in seen]
            for cohort, seen in sorted(self._seen.items())
            if seen
        }

    def restore(self, document: Mapping[str, Any]) -> None:
        """Become what :meth:`export` described.

        Raises:
            TypeError, ValueError: the document is not one of ours.
        """
        self._seen = {
            str(cohort): [[frozenset(int(client) for client in group) for group in groups] for groups in seen]
            for cohort, seen in document.items()
        }


def _alike(earlier: Groups, now: Groups) -> bool:
    """Whether those who replied both times are parted alike, with two of each group."""
    both = frozenset[ClientId]().union(*earlier) & frozenset[ClientId]().union(*now)
    parts = [{group & both for group in groups} for groups in (earlier, now)]
    return parts[0] == parts[1] and all(len(part) >= LEAST_GROUP for part in parts[0])


def _parted(cohort: CohortId, groups: Groups) -> dict[ClientId, Refusal]:
    staying = max(groups, key=lambda group: (len(group), -min(group)))
    leaving = sorted(client for group in groups if group is not staying for client in group)
    logger.info("mixed_cohort_parted", cohort=cohort, staying=sorted(staying), leaving=leaving)
    words = (
        f"the members of {cohort} pull its weights {len(groups)} ways, which agree inside and cancel each other, in "
        "rounds in a row: one model cannot serve them, so this gateway was regrouped as if it had flagged"
    )
    return {client: Refusal(MIXED_COHORT, words) for client in leaving}
