"""The cohorts that split off, watched in case a split was noise."""

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from server_bridge.aggregation.means import weighted_mean
from server_bridge.cohorts.cohorter import ClientId, CohortAssignment
from server_bridge.cohorts.explanation import Explanation
from server_bridge.cohorts.membership import CohortId, CohortRegistry
from server_bridge.cohorts.recognition import Recognition, RecognitionRule, group_change, recognise
from server_bridge.cohorts.returns import (
    Return,
    ReturnRule,
    Streak,
    change_cosines,
    is_doubtful,
    judge,
    small_cohorts,
)
from server_bridge.cohorts.selectors import Parameters, ParamSelector, Vector


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
        self._earlier: dict[CohortId, Parameters] = {}
        self._descendants: dict[CohortId, set[CohortId]] = {}
        self._looked_at: set[CohortId] = set()

    def split(
        self,
        cohort: CohortId,
        bases: Sequence[Parameters],
        former: Mapping[CohortId, Parameters],
        explanations: Iterable[Explanation | None],
        barred: Iterable[CohortId] = (),
    ) -> None:
        """A cohort has begun.

        Args:
            cohort: its name.
            bases: what each of its members was sent.
            former: the cohorts that they came from, with the weights that were sent.
            explanations: its members'.
            barred: cohorts that it cannot go back to: their weights were no good on its members' data.
        """
        for name, model in former.items():
            self._origins.setdefault(name, self._known(model))
        self._origins[cohort] = self._known(_origin(bases))
        for name in former:
            self._descendants.setdefault(name, set()).add(cohort)
        if any(is_doubtful(explanation) for explanation in explanations):
            self._doubtful.add(cohort)
            if len(bases) <= self._rule.few:
                self._earlier[cohort] = self._origins[cohort]
                self._looked_at.add(cohort)
        if gone := set(barred):
            self._barred[cohort] = gone

    def _known(self, model: Parameters) -> Parameters:
        """The remembered origin of equal weights, if there is one: after a restart equal weights are two objects."""
        remembered = (*self._origins.values(), *self._earlier.values())
        return next((known for known in remembered if known is model or _equal(known, model)), model)

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

    def look_again(
        self, registry: CohortRegistry, replied: Set[CohortId], tried: Set[CohortId], rule: RecognitionRule
    ) -> list[tuple[CohortId, Recognition]]:
        """Judge small cohorts that split off in an earlier adaptation, once in each later one.

        Args:
            registry: who is where, and the weights.
            replied: cohorts that got an update in this round.
            tried: cohorts whose loss on their own members' data is known, so that the next can refute the
                decision; others, and those that split off from the small one, it does not go to.
            rule: what a cohort's change since its beginning must show to be a known drift's.

        Returns:
            The cohorts that belong to another, and to which.
        """
        found = []
        for cohort in self.due(registry):
            if cohort not in replied:
                continue
            self._looked_at.add(cohort)
            strangers = {cohort} | self._barred.get(cohort, set()) | self._descendants.get(cohort, set())
            known = self._models(registry, tried - strangers)
            change = group_change(
                [self._selector.flatten(registry.params(cohort))], [self._selector.flatten(self._earlier[cohort])]
            )
            recognition = recognise(rule, change, known)
            if recognition is not None and recognition.recognised:
                found.append((cohort, recognition))
        return found

    def due(self, registry: CohortRegistry) -> list[CohortId]:
        """Small cohorts of earlier adaptations whose split was doubtful, and that this one has not looked at."""
        waiting = sorted(self._earlier.keys() - self._looked_at)
        return [cohort for cohort in waiting if 0 < len(registry.members(cohort)) <= self._rule.few]

    def confirm(self, cohort: CohortId) -> None:
        """Somebody else has been found to belong there: it was no noise."""
        self._earlier.pop(cohort, None)

    def looked_at(self, cohorts: Iterable[CohortId], confirmed: Set[CohortId]) -> None:
        """These have been judged otherwise in this adaptation, and some are not doubtful any more."""
        self._looked_at.update(cohorts)
        self._earlier = {cohort: model for cohort, model in self._earlier.items() if cohort not in confirmed}

    def _models(self, registry: CohortRegistry, cohorts: Set[CohortId]) -> dict[CohortId, Vector]:
        living = [cohort for cohort in registry.cohort_ids if cohort in cohorts and registry.params(cohort)]
        return {cohort: self._selector.flatten(registry.params(cohort)) for cohort in living}

    def forget(self, living: Iterable[CohortId]) -> None:
        """Let go of cohorts that are no more."""
        names = set(living)
        self._origins = {cohort: model for cohort, model in self._origins.items() if cohort in names}
        self._earlier = {cohort: model for cohort, model in self._earlier.items() if cohort in names}
        self._descendants = {c: kept for c, born in self._descendants.items() if c in names and (kept := born & names)}
        self._doubtful &= names
        self._looked_at &= names
        self._barred = {c: kept for c, others in self._barred.items() if c in names and (kept := others & names)}
        self._streaks = {c: s for c, s in self._streaks.items() if c in names and s.target in names}

    def end_adaptation(self) -> None:
        """What split off stays for now; a doubtful split is looked at again in later adaptations."""
        self._barred = {cohort: others for cohort, others in self._barred.items() if cohort in self._earlier}
        self._origins.clear()
        self._doubtful.clear()
        self._streaks.clear()
        self._looked_at.clear()

    def export(self) -> tuple[dict[str, Any], dict[str, Parameters]]:
        """JSON values, and the weights that they name; cohorts that began alike share one."""
        names: dict[int, CohortId] = {}
        for cohort, model in self._origins.items():
            names.setdefault(id(model), cohort)
        for cohort, model in self._earlier.items():
            names.setdefault(id(model), f"earlier-{cohort}")
        document = {
            "origins": [[cohort, names[id(model)]] for cohort, model in self._origins.items()],
            "earlier": [[cohort, names[id(model)]] for cohort, model in self._earlier.items()],
            "doubtful": sorted(self._doubtful),
            "barred": [[cohort, sorted(others)] for cohort, others in sorted(self._barred.items())],
            "descendants": [[cohort, sorted(born)] for cohort, born in sorted(self._descendants.items())],
            "looked_at": sorted(self._looked_at),
            "streaks": [[cohort, each.target, each.rounds] for cohort, each in sorted(self._streaks.items())],
        }
        models = {id(model): model for model in (*self._origins.values(), *self._earlier.values())}
        return document, {name: models[key] for key, name in names.items()}

    def restore(self, document: Mapping[str, Any], models: Mapping[str, Parameters]) -> None:
        """Become what :meth:`export` described, in this version or the one before.

        Raises:
            KeyError, TypeError, ValueError: the document is not one of ours.
        """
        self._origins = {str(cohort): models[name] for cohort, name in document["origins"]}
        self._earlier = {str(cohort): models[name] for cohort, name in document.get("earlier", [])}
        self._doubtful = {str(cohort) for cohort in document["doubtful"]}
        self._barred = {str(cohort): set(map(str, others)) for cohort, others in document.get("barred", [])}
        self._descendants = {str(cohort): set(map(str, born)) for cohort, born in document.get("descendants", [])}
        self._looked_at = {str(cohort) for cohort in document.get("looked_at", [])}
        self._streaks = {str(cohort): Streak(str(t), int(rounds)) for cohort, t, rounds in document["streaks"]}


def _origin(bases: Sequence[Parameters]) -> Parameters:
    """The one that all were sent, or the mean of these."""
    if len({id(base) for base in bases}) == 1:
        return bases[0]
    return weighted_mean(list(bases), [1.0] * len(bases))


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
