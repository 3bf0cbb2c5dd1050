"""Recognised by its weights alone, a client is on trial: the loss that it reports next confirms or refutes it."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from server_bridge.cohorts.candidate_choice import CandidateRule, Score, highest_loss
from server_bridge.cohorts.cohorter import ClientId
from server_bridge.cohorts.membership import CohortId
from server_bridge.flower.updates import ClientUpdate


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

    @property
    def clients(self) -> set[ClientId]:
        """Who is on trial."""
        return set(self._trials)

    def begin(self, group: Sequence[ClientUpdate], cohort: CohortId) -> None:
        """A group has been recognised; who reports no loss cannot be judged."""
        for update in group:
            self._trials.pop(update.client, None)
            if update.loss is not None:
                self._trials[update.client] = Trial(
                    cohort, update.cohort, update.loss, update.examples, group[0].client
                )

    def end(
        self, updates: Iterable[ClientUpdate], levels: Mapping[CohortId, float]
    ) -> list[list[tuple[ClientUpdate, Refuted]]]:
        """Judge those who have trained from their new cohort's weights; the others remain on trial.

        Returns:
            For whom the cohort's model is not good enough, by group. Where no level is known it is.
        """
        refuted: dict[int, list[tuple[ClientUpdate, Refuted]]] = {}
        for update in updates:
            trial = self._trials.get(update.client)
            if trial is None or update.cohort != trial.cohort or update.loss is None:
                continue
            del self._trials[update.client]
            own = Score.guessed(trial.loss, trial.examples)
            score = Score.guessed(update.loss, update.examples)
            highest = highest_loss(self._rule, score, own, levels.get(trial.cohort, math.nan))
            if score.loss > highest:
                reason = Refuted(trial.cohort, update.loss, highest, trial.loss)
                refuted.setdefault(trial.group, []).append((update, reason))
        return [refuted[group] for group in sorted(refuted)]

    def clear(self) -> None:
        """The adaptation is over."""
        self._trials.clear()

    def export(self) -> list[list[Any]]:
        """JSON values."""
        return [[c, t.cohort, t.former, t.loss, t.examples, t.group] for c, t in sorted(self._trials.items())]

    def restore(self, document: Iterable[Sequence[Any]]) -> None:
        """Become what :meth:`export` described.

        Raises:
            TypeError, ValueError: the document is not one of ours.
        """
        self._trials = {
            int(client): Trial(str(cohort), str(former), float(loss), float(examples), int(group))
            for client, cohort, former, loss, examples, group in document
        }
