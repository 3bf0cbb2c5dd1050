"""The cohorts that split off in one adaptation, watched in case a split was noise."""

import math
from collections.abc import Iterable, Mapping, Set
from typing import Any

import numpy as np

from server_bridge.cohorts.cohorter import ClientId, CohortAssignment
from server_bridge.cohorts.explanation import Explanation
from server_bridge.cohorts.membership import CohortId, CohortRegistry
from server_bridge.cohorts.returns import (
    Return,
    ReturnRule,
    Streak,
    change_cosines,
    is_doubtful,
    judge,
    small_cohorts,
)
from server_bridge.cohorts.selectors import Parameters, ParamSelector


class SplitWatch:
    """What must be remembered between two rounds to judge returns.

    Args:
        rule: see :class:`~server_bridge.cohorts.returns.ReturnRule`.
        selector: the tensors whose changes are compared.
    """

    def __init__(self, rule: ReturnRule, selector: ParamSelector) -> None:
        self._rule = rule
        self._selector = selector
        self._origins: dict[CohortId, Parameters] = {}
        self._doubtful: set[CohortId] = set()
        self._barred: dict[CohortId, set[CohortId]] = {}
        self._streaks: dict[CohortId, Streak] = {}

    def split(
        self,
        cohort: CohortId,
        origin: Parameters,
        former: Mapping[CohortId, Parameters],
        explanations: Iterable[Explanation | None],
        barred: Iterable[CohortId] = (),
    ) -> None:
        """A cohort has begun.

        Args:
            cohort: its name.
            origin: what its members were sent; their mean if that differs.
            former: the cohorts that they came from, with the weights that were sent.
            explanations: its members'.
            barred: cohorts that it cannot go back to: their weights were no good on its members' data.
        """
        for name, model in former.items():
            self._origins.setdefault(name, self._known(model))
        self._origins[cohort] = self._known(origin)
        if any(is_doubtful(explanation) for explanation in explanations):
            self._doubtful.add(cohort)
        if gone := set(barred):
            self._barred[cohort] = gone

    def _known(self, model: Parameters) -> Parameters:
        """The remembered origin of equal weights, if there is one: after a restart equal weights are two objects."""
        return next((known for known in self._origins.values() if known is model or _equal(known, model)), model)

    def look(
        self, registry: CohortRegistry, replied: Set[CohortId], created: Set[CohortId]
    ) -> list[tuple[CohortId, CohortId, Return]]:
        """Judge a round that has been averaged.

        Args:
            registry: who is where, and the weights.
            replied: cohorts that got an update in this round; what repeats itself is no new evidence.
            created: cohorts that began in this round.

        Returns:
            The cohort to keep, the older one, the one that goes into it, and why.
        """
        living = [cohort for cohort in registry.cohort_ids if cohort in self._origins and cohort not in created]
        sizes = {cohort: len(registry.members(cohort)) for cohort in living}
        candidates = [c for c in small_cohorts(self._rule, sizes, self._doubtful) if c in replied]
        if not candidates:
            return []
        origins = {id(model): self._selector.flatten(model) for model in self._origins.values()}
        cosines = change_cosines(
            {cohort: self._selector.flatten(registry.params(cohort)) for cohort in living},
            {cohort: origins[id(self._origins[cohort])] for cohort in living},
        )
        cosines |= {
            pair: -1.0
            for one, others in self._barred.items()
            for other in others
            for pair in ((one, other), (other, one))
        }
        self._streaks, found = judge(self._rule, self._streaks, cosines, sizes, candidates)
        pairs = [sorted((one.small, one.target), key=living.index) for one in found]
        return [(kept, gone, one) for (kept, gone), one in zip(pairs, found, strict=True)]

    def forget(self, living: Iterable[CohortId]) -> None:
        """Let go of cohorts that are no more."""
        names = set(living)
        self._origins = {cohort: model for cohort, model in self._origins.items() if cohort in names}
        self._doubtful &= names
        self._barred = {c: kept for c, others in self._barred.items() if c in names and (kept := others & names)}
        self._streaks = {c: s for c, s in self._streaks.items() if c in names and s.target in names}

    def clear(self) -> None:
        """The adaptation is over: what split off stays."""
        self.forget([])

    def export(self) -> tuple[dict[str, Any], dict[str, Parameters]]:
        """JSON values, and the weights that they name; cohorts that began alike share one."""
        names: dict[int, CohortId] = {}
        for cohort, model in self._origins.items():
            names.setdefault(id(model), cohort)
        document = {
            "origins": [[cohort, names[id(model)]] for cohort, model in self._origins.items()],
            "doubtful": sorted(self._doubtful),
            "barred": [[cohort, sorted(others)] for cohort, others in sorted(self._barred.items())],
            "streaks": [[cohort, each.target, each.rounds] for cohort, each in sorted(self._streaks.items())],
        }
        return document, {name: self._origins[name] for name in names.values()}

    def restore(self, document: Mapping[str, Any], models: Mapping[str, Parameters]) -> None:
        """Become what :meth:`export` described.

        Raises:
            KeyError, TypeError, ValueError: the document is not one of ours.
        """
        self._origins = {str(cohort): models[name] for cohort, name in document["origins"]}
        self._doubtful = {str(cohort) for cohort in document["doubtful"]}
        self._barred = {str(cohort): set(map(str, others)) for cohort, others in document.get("barred", [])}
        self._streaks = {str(cohort): Streak(str(t), int(rounds)) for cohort, t, rounds in document["streaks"]}


def split_facts(assignment: CohortAssignment, client: ClientId) -> dict[str, Any]:
    """What spoke for a client's new cohort, as JSON values: its explanation, else the statistic alone."""
    if client in assignment.explanations:
        return plain(assignment.explanations[client].to_json())
    if client in assignment.ks_statistics:
        return plain({"rule": "signed-ks", "ks_statistic": assignment.ks_statistics[client]})
    return plain({"rule": "cohorter", "similarity": assignment.similarities.get(client)})


def plain(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of any cohorter as JSON can hold them: numbers of numpy as Python's, what is not finite as null."""

    def value(content: Any) -> Any:
        if isinstance(content, Mapping):
            return plain(content)
        number = content.item() if isinstance(content, np.generic) else content
        return None if isinstance(number, float) and not math.isfinite(number) else number

    return {str(key): value(content) for key, content in facts.items()}


def _equal(left: Parameters, right: Parameters) -> bool:
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)
