"""How cohorts form, and dissolve into one another: Algorithm 3, known concepts, splits that were noise."""

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import structlog

from server_bridge.aggregation.means import weighted_mean
from server_bridge.cohorts.cohorter import ClientId, CohortAssignment, Cohorter
from server_bridge.cohorts.explanation import Explanation
from server_bridge.cohorts.membership import CohortId, CohortRegistry, Model
from server_bridge.cohorts.recognition import RecognitionRule
from server_bridge.cohorts.returns import ReturnRule
from server_bridge.cohorts.selectors import ParamSelector
from server_bridge.cohorts.split_watch import SplitWatch, plain, split_facts
from server_bridge.flower.known import KnownConcepts
from server_bridge.flower.regrouping import assign, groups_of
from server_bridge.flower.trials import Fallback, Refuted
from server_bridge.flower.updates import ClientUpdate

logger = structlog.get_logger(__name__)


class Formation:
    """Moves clients between cohorts after a round.

    Args:
        registry: who is where, and the weights.
        selector: the tensors that are compared.
        known: what is known of living cohorts.
        returns: when a small cohort goes back within its adaptation; ``None`` for never.
        recognition: when it does so in a later one; ``None`` for never.
        model_of: the weights of a cohort of these updates.
    """

    def __init__(
        self,
        registry: CohortRegistry,
        selector: ParamSelector,
        known: KnownConcepts,
        returns: ReturnRule | None,
        recognition: RecognitionRule | None,
        model_of: Callable[[Sequence[ClientUpdate]], Model],
    ) -> None:
        self._registry = registry
        self._selector = selector
        self._known = known
        self._recognition = recognition
        self._model_of = model_of
        self._splits = None if returns is None else SplitWatch(returns, selector)

    def regroup(
        self, cohorter: Cohorter, updates: Sequence[ClientUpdate], drifted: Set[ClientId], reference: Model
    ) -> list[CohortId]:
        """Send quarantined clients to the cohorts that know their drift, or to new ones; returns the new ones."""
        movers = [update for update in updates if update.client in drifted]
        if not movers:
            return []
        stable = [update for update in updates if update.client not in drifted]
        assignment = assign(cohorter, self._selector, movers, updates, reference)
        groups = groups_of(assignment, movers)
        parts = self._known.agreed([self._known.find(group, stable, self._registry) for group in groups])
        created = []
        for group, known in zip(groups, parts, strict=True):
            for part, recognition in known:
                facts = plain(recognition.to_json())
                self._registry.join([u.client for u in part], recognition.cohort, {u.client: facts for u in part})
                fallback = Fallback(_mean_base(part), self._model_of(part))
                self._known.joined(part, recognition.cohort, fallback)
                self.confirm(recognition.cohort)
            joined = {update.client for part, _ in known for update in part}
            if rest := [update for update in group if update.client not in joined]:
                created.append(self._create(rest, assignment))
        return created

    def part(self, refuted: Sequence[tuple[ClientUpdate, Refuted]]) -> CohortId:
        """A cohort of quarantined clients that looked like a known concept and are none of it."""
        group = [update for update, _ in refuted]
        facts = {update.client: plain(why.to_json()) for update, why in refuted}
        return self._begin(group, {}, facts, [None] * len(group))

    def _create(self, group: Sequence[ClientUpdate], assignment: CohortAssignment) -> CohortId:
        statistics = assignment.ks_statistics or assignment.similarities
        facts = {update.client: split_facts(assignment, update.client) for update in group}
        return self._begin(group, statistics, facts, [assignment.explanations.get(u.client) for u in group])

    def _begin(
        self,
        group: Sequence[ClientUpdate],
        statistics: Mapping[ClientId, float],
        facts: Mapping[ClientId, dict[str, Any]],
        explanations: Sequence[Explanation | None],
    ) -> CohortId:
        members = [update.client for update in group]
        cohort = self._registry.create_cohort(members, self._model_of(group), statistics, facts)
        bases = [update.base for update in group]
        if (fallback := self._known.began(cohort, group)) is not None:
            self._registry.set_params(cohort, dict(fallback.model))
            bases = [fallback.base] * len(group)
            logger.info("begins_as_before_recognition", cohort=cohort, members=members)
        if self._splits is not None:
            former = {update.cohort: update.base for update in group}
            barred = self._known.unfit(group)
            self._splits.split(cohort, bases, former, explanations, barred)
        logger.info("cohort_created", cohort=cohort, members=members)
        return cohort

    def dissolve(self, updates: Sequence[ClientUpdate], created: Sequence[CohortId]) -> None:
        """Let splits that were noise go back, now that the round has been averaged."""
        if self._splits is None:
            return
        replied = {self._registry.cohort_of(update.client) for update in updates}
        for kept, gone, why in self._splits.look(self._registry, replied, set(created)):
            self._registry.merge(kept, gone, "returned", why.to_json())
            logger.info("cohort_returned", cohort=gone, into=kept, **why.to_json())
        if self._recognition is not None:
            self._look_again(updates, replied, self._recognition)

    def _look_again(self, updates: Sequence[ClientUpdate], replied: Set[CohortId], rule: RecognitionRule) -> None:
        """Small cohorts of earlier adaptations; who goes is on trial like anybody who is recognised."""
        if self._splits is None:
            return
        for cohort, recognition in self._splits.look_again(self._registry, replied, self._known.tried, rule):
            if recognition.cohort not in self._registry.cohort_ids or cohort not in self._registry.cohort_ids:
                continue
            members = self._registry.members(cohort)
            going = [update for update in updates if update.client in members]
            fallback = Fallback(_mean_base(going), dict(self._registry.params(cohort)))
            facts = plain({**recognition.to_json(), "rule": "returned"})
            self._registry.join(members, recognition.cohort, dict.fromkeys(members, facts), "returned")
            self._known.joined(going, recognition.cohort, fallback)
            logger.info("cohort_returned", cohort=cohort, into=recognition.cohort, sentence=recognition.sentence)
            self._registry.prune_empty()

    def forget(self) -> None:
        """Let go of cohorts that are no more."""
        if self._splits is not None:
            self._splits.forget(self._registry.cohort_ids)

    def confirm(self, cohort: CohortId) -> None:
        """A cohort that others have been found to belong to was no noise."""
        if self._splits is not None:
            self._splits.confirm(cohort)

    def due(self) -> list[CohortId]:
        """Small cohorts of earlier adaptations that have not been looked at in this one."""
        return [] if self._splits is None else self._splits.due(self._registry)

    def looked_at(self, cohorts: Sequence[CohortId], preferred: Mapping[ClientId, CohortId]) -> None:
        """Members of these have evaluated the cohorts that they may belong to; one that they all prefer is real."""
        if self._splits is None:
            return
        confirmed = {
            cohort
            for cohort in cohorts
            if all(preferred.get(client) == cohort for client in self._registry.members(cohort))
        }
        self._splits.looked_at(cohorts, confirmed)

    def end_adaptation(self) -> None:
        """Doubtful splits are looked at again in later ones."""
        if self._splits is not None:
            self._splits.end_adaptation()

    def export(self) -> tuple[dict[str, Any], dict[str, Model]]:
        """JSON values, and the weights that they name."""
        document, models = ({}, {}) if self._splits is None else self._splits.export()
        return document, {name: dict(model) for name, model in models.items()}

    def restore(self, document: Mapping[str, Any], models: Mapping[str, Model]) -> None:
        """Become what :meth:`export` described.

        Raises:
            KeyError, TypeError, ValueError: the document is not one of ours.
        """
        if self._splits is not None and document:
            self._splits.restore(document, models)
            self._splits.forget(self._registry.cohort_ids)


def _mean_base(group: Sequence[ClientUpdate]) -> Model:
    """What a group was sent; the mean where that differs."""
    bases = list({id(update.base): update.base for update in group}.values())
    return dict(bases[0]) if len(bases) == 1 else weighted_mean(bases, [1.0] * len(bases))
