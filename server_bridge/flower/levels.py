"""How well each cohort's model does on its own members' data: what a known concept must come near to."""

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

from server_bridge.cohorts.cohorter import ClientId
from server_bridge.cohorts.membership import CohortId
from server_bridge.flower.updates import ClientUpdate

MOST_RISE, LEAST_RISE = 3.0, 0.3  # honest members' losses lie nearer to each other


class LossLevels:
    """A loss by cohort, from the ``clma-loss`` that members report of the weights they were sent.

    The first round of an adaptation counts, since later ones report on data that the model has
    been trained on meanwhile; of a cohort that began in it the latest.
    """

    def __init__(self) -> None:
        self._levels: dict[CohortId, float] = {}
        self._told: set[CohortId] = set()

    @property
    def by_cohort(self) -> dict[CohortId, float]:
        """The levels that are known."""
        return dict(self._levels)

    def learn(self, updates: Iterable[ClientUpdate], apart: Set[ClientId], began: Set[CohortId]) -> None:
        """Take the losses of a round.

        Args:
            updates: of the round.
            apart: clients that say nothing of their cohort: they drifted, or are on trial in it.
            began: cohorts that began in this adaptation.
        """
        losses: dict[CohortId, list[tuple[float, float]]] = {}
        for update in updates:
            if update.loss is not None and update.client not in apart:
                losses.setdefault(update.cohort, []).append((update.loss, update.examples))
        for cohort in losses.keys() - (self._told - began):
            self._levels[cohort] = _level(losses[cohort])
            self._told.add(cohort)

    def end_adaptation(self) -> None:
        """The next round reports on new data."""
        self._told.clear()

    def forget(self, living: Iterable[CohortId]) -> None:
        """Let go of cohorts that are no more."""
        names = set(living)
        self._levels = {cohort: level for cohort, level in self._levels.items() if cohort in names}
        self._told &= names

    def export(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "levels": [[cohort, level] for cohort, level in sorted(self._levels.items())],
            "told": sorted(self._told),
        }

    def restore(self, document: Mapping[str, Any]) -> None:
        """Become what :meth:`export` described.

        Raises:
            KeyError, TypeError, ValueError: the document is not one of ours.
        """
        self._levels = {str(cohort): float(level) for cohort, level in document["levels"]}
        self._told = {str(cohort) for cohort in document["told"]}


def far_above(usual: float | None) -> float:
    """The loss from which on a model is no longer near a usual one; infinite if that is not known."""
    return math.inf if usual is None else usual + max(MOST_RISE * abs(usual), LEAST_RISE)


def _level(told: Sequence[tuple[float, float]]) -> float:
    """Mean loss by examples of (loss, examples) pairs; a loss far above the usual one counts no higher than that.

    Else one member's claim makes every other's drift look like a false flag.
    """
    most = far_above(sorted(loss for loss, _ in told)[(len(told) - 1) // 2])
    return sum(min(loss, most) * count for loss, count in told) / sum(count for _, count in told)
