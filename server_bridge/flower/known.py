"""Known concepts: drifted clients that belong to a living cohort, found before or after they train."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import numpy as np
import structlog
from flwr.serverapp import Grid

from server_bridge.cohorts.candidate_choice import CandidateRule, Choice, Score, best_start, highest_loss
from server_bridge.cohorts.cohorter import ClientId
from server_bridge.cohorts.membership import ROOT, CohortId, CohortRegistry, Reason
from server_bridge.cohorts.recognition import Recognition, RecognitionRule, group_change, recognise
from server_bridge.cohorts.selectors import ParamSelector, Vector
from server_bridge.cohorts.split_watch import plain
from server_bridge.flower.candidates import Inquiry, inquire, short_list
from server_bridge.flower.levels import LossLevels, far_above
from server_bridge.flower.trials import Fallback, Refuted, Trials
from server_bridge.flower.updates import ClientUpdate, Model

logger = structlog.get_logger(__name__)


class KnownConcepts:
    """What a strategy needs to send drifted clients to cohorts that exist.

    Args:
        recognition: from weights alone, after a round; ``None`` for off.
        candidates: how many cohorts' models a drifted client evaluates before a round; 0 for off.
        choice: how the best of these is judged.
        selector: the tensors whose changes are compared.
        best_start: whether clients whose drift no evaluated model is good enough for train from the best of them.
    """

    def __init__(
        self,
        recognition: RecognitionRule | None,
        candidates: int,
        choice: CandidateRule,
        selector: ParamSelector,
        best_start: bool = False,
    ) -> None:
        self._recognition = recognition
        self._candidates = candidates
        self._choice = choice
        self._selector = selector
        self._best_start = best_start
        self._starts: dict[ClientId, CohortId] = {}
        self._left: dict[ClientId, CohortId] = {}
        self._levels = LossLevels()
        self._trials = Trials(choice)
        self._began: set[CohortId] = set()
        self._moved: set[ClientId] = set()
        self._stayed: set[ClientId] = set()
        self._evaluated: dict[ClientId, set[CohortId]] = {}

    @property
    def tried(self) -> set[CohortId]:
        """Cohorts from before this adaptation whose loss on their own members' data is known."""
        return set(self._levels.by_cohort) - self._began

    @property
    def on_trial(self) -> set[ClientId]:
        """Clients that have been recognised by their weights and wait for the next round's loss."""
        return self._trials.clients

    @property
    def asks(self) -> bool:
        """Whether clients evaluate cohorts' models before a round."""
        return self._candidates > 0

    @property
    def active(self) -> bool:
        """Whether any of it is on."""
        return self._recognition is not None or self._candidates > 0

    @property
    def moved(self) -> set[ClientId]:
        """Clients that went to a known cohort before this round."""
        return set(self._moved)

    @property
    def stayed(self) -> set[ClientId]:
        """Clients whose own model was found good enough before this round."""
        return set(self._stayed)

    @property
    def starts(self) -> dict[ClientId, CohortId]:
        """Client to the cohort whose weights it trains from in this round, where these are not its own cohort's."""
        return dict(self._starts)

    def begin_round(self) -> None:
        """Nobody has been asked yet."""
        self._starts.clear()
        self._left.clear()
        self._moved.clear()
        self._stayed.clear()
        self._evaluated.clear()

    def ask(
        self,
        server_round: int,
        clients: Mapping[ClientId, Reason],
        registry: CohortRegistry,
        grid: Grid,
        numbered: bool,
    ) -> dict[ClientId, CohortId]:
        """Let clients evaluate known models, and move those that one is good enough for.

        Args:
            server_round: about to be trained.
            clients: who, and why it moves if it does.
            registry: who is where; changed.
            grid: carries the evaluations.
            numbered: whether clients know cohorts by their numbers.

        Returns:
            The cohort whose model did best, for every client that has evaluated its own and another.
        """
        always = (ROOT,) if self._best_start and math.isfinite(self._choice.chance) else ()
        lists = {client: short_list(registry, client, self._candidates, always) for client in sorted(clients)}
        inquiry = Inquiry(server_round, lists, self._levels.by_cohort, numbered)
        choices = inquire(grid, self._choice, inquiry, registry.params)
        for client, choice in choices.items():
            facts = plain(choice.to_json())
            logger.info("candidates_evaluated", node=client, verdict=choice.verdict, **facts)
            self._evaluated[client] = set(choice.scores)
            if choice.verdict == "moves":
                registry.join([client], choice.best, {client: facts}, clients[client])
                self._moved.add(client)
            elif choice.verdict == "stays":
                self._stayed.add(client)
        if self._best_start:
            drifted = [client for client in choices if clients[client] == "recognised"]
            self._begin_from([(c, choices[c]) for c in drifted if choices[c].verdict == "unknown"])
        return {client: choice.best for client, choice in choices.items()}

    def _begin_from(self, unknown: Sequence[tuple[ClientId, Choice]]) -> None:
        """Those whose drift nobody knows begin, one former cohort's together, from the model that is best for them."""
        for own in {choice.own for _, choice in unknown}:
            leaving = {client: choice for client, choice in unknown if choice.own == own}
            best = best_start(self._choice, list(leaving.values()))
            if best != own:
                logger.info("begin_from_another_cohort", nodes=sorted(leaving), own=own, best=best)
                self._starts.update(dict.fromkeys(leaving, best))
                self._left.update(dict.fromkeys(leaving, own))

    def find(
        self, group: Sequence[ClientUpdate], stable: Sequence[ClientUpdate], registry: CohortRegistry
    ) -> list[tuple[list[ClientUpdate], Recognition]]:
        """The living cohorts that a group of movers, or parts of it, point to, if the rule is sure of it.

        Members that point to different cohorts each by itself go to these: drifts away from one
        model have that in common, and a cohorter may take them for one. Nothing is guessed twice in an adaptation.

        Args:
            group: the movers' updates.
            stable: updates of clients that did not drift.
            registry: who is where.
        """
        group = [update for update in group if update.client not in self._trials.spent]
        if self._recognition is None or not group:
            return []
        usual = self._usual_changes(group, stable)
        judged = {u.client: self._judge([u], usual, registry) for u in group} if len(group) > 1 else {}
        singly = {client: found for client, found in judged.items() if found is not None}
        whole = self._judge(group, usual, registry)
        pointed_to = {found.cohort for found in singly.values()} | ({whole.cohort} if whole is not None else set())
        if len(pointed_to) < 2:
            return [] if whole is None else [(list(group), whole)]
        parts = [([update], singly[update.client]) for update in group if update.client in singly]
        rest = [update for update in group if update.client not in singly]
        left = self._judge(rest, usual, registry) if rest else None
        return parts if left is None else [*parts, (rest, left)]

    def agreed(
        self, proposals: Sequence[list[tuple[list[ClientUpdate], Recognition]]]
    ) -> list[list[tuple[list[ClientUpdate], Recognition]]]:
        """What :meth:`find` proposed for each group, less what all that goes the same way is too many for.

        A wrong proposal takes a round from each of them, whether a cohorter saw one group or two.
        """
        if self._recognition is None:
            return list(proposals)
        level_of = self._recognition.level_of
        going = Counter((u.cohort, found.cohort) for group in proposals for part, found in group for u in part)
        return [
            [
                (part, found)
                for part, found in group
                if found.similarity >= level_of(max(going[u.cohort, found.cohort] for u in part))
            ]
            for group in proposals
        ]

    def _usual_changes(self, group: Sequence[ClientUpdate], stable: Sequence[ClientUpdate]) -> dict[int, Vector]:
        """The mean change of the stable clients of each base that the group was sent, by the base's identity."""
        flat, usual = self._selector.flatten, dict[int, Vector]()
        for base in {id(update.base): update.base for update in group}.values():
            origin = flat(base)
            changes = [flat(update.params) - origin for update in stable if update.base is base]
            if changes:
                usual[id(base)] = np.mean(changes, axis=0, dtype=np.float64)
        return usual

    def _judge(
        self, group: Sequence[ClientUpdate], usual: Mapping[int, Vector], registry: CohortRegistry
    ) -> Recognition | None:
        if self._recognition is None:
            return None
        flat = self._selector.flatten
        tried = {update.cohort for update in group}.union(*(self._evaluated.get(u.client, set()) for u in group))
        known = {c: flat(registry.params(c)) for c in registry.cohort_ids if c not in tried and registry.params(c)}
        if not known:
            return None
        bases = {id(update.base): flat(update.base) for update in group}
        peers = [usual[base] for base in bases if base in usual]
        change = group_change(
            [flat(update.params) for update in group],
            [bases[id(update.base)] for update in group],
            peers if len(bases) == 1 else (),
            [update.reliability for update in group],
        )
        tried_next = all(update.loss is not None for update in group)
        found = recognise(self._recognition if tried_next else self._recognition.without_trial(), change, known)
        if found is None or not found.recognised:
            return None
        if found.cohort == ROOT and any(update.reliability is None for update in group):
            logger.info("root_needs_reliability", nodes=[update.client for update in group])
            return None  # the root holds whoever has not drifted yet: a guess may not cost them
        logger.info("known_concept", nodes=[update.client for update in group], **plain(found.to_json()))
        return found

    def learn(self, updates: Sequence[ClientUpdate], drifted: Set[ClientId]) -> None:
        """Remember how well the cohorts' models did on their own members' data in this round."""
        self._levels.learn(updates, drifted | self._trials.clients, self._began)

    def refuted(self, updates: Iterable[ClientUpdate]) -> list[list[tuple[ClientUpdate, Refuted]]]:
        """Clients recognised a round ago for whom the cohort's model is no good after all, by group."""
        return self._trials.end(updates, self._levels.by_cohort)

    def unfit(self, group: Iterable[ClientUpdate]) -> set[CohortId]:
        """The cohorts that members of a group came from whose weights were no good on their data: they did drift.

        Where no other member told how good these weights can be, what training made of them tells it. Who begins from
        another cohort's weights found its own worse than these.
        """
        group = list(group)
        levels, bad = self._levels.by_cohort, {self._left[u.client] for u in group if u.client in self._left}
        for update in group:
            if update.loss is None:
                continue
            score = Score.guessed(update.loss, update.examples)
            if update.cohort in levels:
                limit = highest_loss(self._choice, score, score, levels[update.cohort])
            else:
                limit = far_above(update.loss_after)
            if score.loss > limit:
                bad.add(update.cohort)
        return bad

    def joined(self, group: Sequence[ClientUpdate], cohort: CohortId, fallback: Fallback) -> None:
        """A group was recognised by its weights; without it, it would have begun with these."""
        self._trials.begin(group, cohort, fallback)

    def began(self, cohort: CohortId, group: Sequence[ClientUpdate]) -> Fallback | None:
        """A cohort of these begins in this round; what it begins with, if not with what they have trained now."""
        self._began.add(cohort)
        return self._trials.leave(group)

    def end_adaptation(self) -> None:
        """Levels stay, all else goes."""
        self._levels.end_adaptation()
        self._trials.clear()
        self._began.clear()
        self.begin_round()

    def forget(self, living: Iterable[CohortId]) -> None:
        """Let go of cohorts that are no more."""
        names = set(living)
        self._levels.forget(names)
        self._began &= names

    def export_memory(self) -> dict[str, Any]:
        """What outlives an adaptation, as JSON values."""
        return self._levels.export()

    def restore_memory(self, document: Mapping[str, Any], living: Iterable[CohortId]) -> None:
        """Become what :meth:`export_memory` described, at an adaptation's beginning.

        Args:
            document: of the adaptation before.
            living: the cohorts that there are now.

        Raises:
            KeyError, TypeError, ValueError: the document is not one of ours.
        """
        self._levels.restore(document)
        self._levels.end_adaptation()
        self._levels.forget(living)

    def export(self) -> dict[str, Any]:
        """JSON values."""
        return {
            **self._levels.export(),
            "trials": self._trials.export(),
            "left": self._trials.export_left(),
            "began": sorted(self._began),
        }

    def export_models(self) -> dict[str, dict[str, Any]]:
        """The weights that belong to it."""
        return self._trials.export_models()

    def restore(self, document: Mapping[str, Any], models: Mapping[str, Model]) -> None:
        """Become what :meth:`export` and :meth:`export_models` described.

        Raises:
            KeyError, TypeError, ValueError: the document is not one of ours.
        """
        self._levels.restore(document)
        self._trials.restore(document["trials"], document.get("left", []), models)
        self._began = {str(cohort) for cohort in document["began"]}
