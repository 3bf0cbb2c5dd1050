"""Recognised by its weights alone, a client is on trial: the loss that it reports next confirms or refutes it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from server_bridge.cohorts.candidate_choice import CandidateRule, Score, highest_loss
from server_bridge.cohorts.cohorter import ClientId
from server_bridge.cohorts.membership import CohortId
from server_bridge.flower.updates import ClientUpdate, Model


@dataclass(frozen=True, slots=True)
class Trial:
    """A recognised client.

    Attributes:
        cohort: the one that it joined.
        former: the one that it came from.
        loss: what the former one's weights had on its data.
        examples: how many these were.
        group: the same for clients that were recognised together.
    """

    cohort: CohortId
    former: CohortId
    loss: float
    examples: float
    group: int


@dataclass(frozen=True, slots=True)
class Fallback:
    """What a group had when it was recognised; a wrong proposal then costs its round, and not what was learnt before.

    Attributes:
        base: the weights that it had been sent.
        model: those that the cohort would have begun with.
    """

    base: Model
    model: Model


@dataclass(frozen=True, slots=True)
class Refuted:
    """Why a recognised client leaves its cohort again.

    Attributes:
        cohort: that one.
        loss: its weights' on the client's data.
        threshold: the greatest that was good enough.
        former_loss: that of the weights that the client had before.
    """

    cohort: CohortId
    loss: float
    threshold: float
    former_loss: float

    def to_json(self) -> dict[str, Any]:
        """As it is kept with the moves."""
        sentence = (
            f"its drift looked like that of {self.cohort}, whose model has a loss of {self.loss:.2f} on its data "
            f"where at most {self.threshold:.2f} is good enough"
        )
        return {
            "rule": "refuted",
            "cohort": self.cohort,
            "loss": self.loss,
            "threshold": self.threshold,
            "former_loss": self.former_loss,
            "sentence": sentence,
        }


class Trials:
    """Who is on trial.

    Args:
        rule: judges the known cohort's model by the client's losses, as in an evaluation.
    """

    def __init__(self, rule: CandidateRule) -> None:
        self._rule = rule
        self._trials: dict[ClientId, Trial] = {}
        self._fallbacks: dict[int, Fallback] = {}
        self._left: set[ClientId] = set()

    @property
    def clients(self) -> set[ClientId]:
        """Who is on trial."""
        return set(self._trials)

    @property
    def spent(self) -> set[ClientId]:
        """Who is on trial, or was and has left: nothing more is guessed for them in this adaptation."""
        return self._left | set(self._trials)

    def begin(self, group: Sequence[ClientUpdate], cohort: CohortId, fallback: Fallback) -> None:
        """A group has been recognised; who reports no loss cannot be judged.

        Args:
            group: its members' updates.
            cohort: the one that they join.
            fallback: what they have without it.
        """
        for update in group:
            self._trials.pop(update.client, None)
            if update.loss is not None:
                self._trials[update.client] = Trial(
                    cohort, update.cohort, update.loss, update.examples, group[0].client
                )
                self._fallbacks[group[0].client] = fallback
        self._sweep()

    def end(
        self, updates: Iterable[ClientUpdate], levels: Mapping[CohortId, float]
    ) -> list[list[tuple[ClientUpdate, Refuted]]]:
        """Judge those who have trained from their new cohort's weights; the others remain on trial.

        Returns:
            For whom the cohort's model is not good enough, by group; until they :meth:`leave`, they are on trial.
            Where no level is known it is good enough.
        """
        refuted: dict[int, list[tuple[ClientUpdate, Refuted]]] = {}
        for update in updates:
            trial = self._trials.get(update.client)
            if trial is None or update.cohort != trial.cohort or update.loss is None:
                continue
            own = Score.guessed(trial.loss, trial.examples)
            score = Score.guessed(update.loss, update.examples)
            highest = highest_loss(self._rule, score, own, levels.get(trial.cohort, math.nan))
            if score.loss > highest:
                reason = Refuted(trial.cohort, update.loss, highest, trial.loss)
                refuted.setdefault(trial.group, []).append((update, reason))
            else:
                del self._trials[update.client]
        self._sweep()
        return [refuted[group] for group in sorted(refuted)]

    def leave(self, group: Sequence[ClientUpdate]) -> Fallback | None:
        """These begin a cohort of their own; what it begins with, if not with what they have trained now.

        Those who were recognised together go on from what they had then, if that was the better start: they trained
        from the cohort's weights since, and had a greater loss with them than with their own.
        """
        self._left |= {update.client for update in group} & set(self._trials)
        trials = [self._trials.pop(update.client, None) for update in group]
        known = [(trial, update) for trial, update in zip(trials, group, strict=True) if trial is not None]
        groups = {trial.group for trial, _ in known}
        found = None
        if len(known) == len(group) and len(groups) == 1:
            found = self._fallbacks.get(groups.pop())
        if found is not None and not _was_better(known):
            found = None
        self._sweep()
        return found

    def _sweep(self) -> None:
        """What nobody on trial can go back to is let go."""
        groups = {trial.group for trial in self._trials.values()}
        self._fallbacks = {group: kept for group, kept in self._fallbacks.items() if group in groups}

    def clear(self) -> None:
        """The adaptation is over."""
        self._trials.clear()
        self._fallbacks.clear()
        self._left.clear()

    def export(self) -> list[list[Any]]:
        """JSON values."""
        return [[c, t.cohort, t.former, t.loss, t.examples, t.group] for c, t in sorted(self._trials.items())]

    def export_models(self) -> dict[str, dict[str, Any]]:
        """The weights that belong to them, by group and place."""
        bases = {f"{group}/base": dict(kept.base) for group, kept in self._fallbacks.items()}
        return {**bases, **{f"{group}/model": dict(kept.model) for group, kept in self._fallbacks.items()}}

    def export_left(self) -> list[ClientId]:
        """Who was on trial and has left."""
        return sorted(self._left)

    def restore(self, document: Iterable[Sequence[Any]], left: Iterable[ClientId], models: Mapping[str, Model]) -> None:
        """Become what the exports described; an older version's state has nobody who left, and no models.

        Raises:
            TypeError, ValueError: the document is not one of ours.
        """
        self._left = {int(client) for client in left}
        groups = {name.partition("/")[0] for name in models}
        self._fallbacks = {
            int(group): Fallback(models[f"{group}/base"], models[f"{group}/model"])
            for group in groups
            if {f"{group}/base", f"{group}/model"} <= set(models)
        }
        self._trials = {
            int(client): Trial(str(cohort), str(former), float(loss), float(examples), int(group))
            for client, cohort, former, loss, examples, group in document
        }


def _was_better(known: Sequence[tuple[Trial, ClientUpdate]]) -> bool:
    """Whether clients had less loss with their former weights than with those of the cohort that they went to."""
    before = sum(trial.loss * trial.examples for trial, _ in known) / sum(trial.examples for trial, _ in known)
    now = [(update.loss, update.examples) for _, update in known if update.loss is not None]
    if len(now) < len(known):
        return False
    return before < sum(loss * examples for loss, examples in now) / sum(examples for _, examples in now)
