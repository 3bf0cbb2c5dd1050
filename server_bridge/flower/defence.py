"""Which updates pass the screening and still do harm: too long ones are shortened, opposing ones are named."""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np

from server_bridge.aggregation.lengths import LengthRule, change_length, clipped_words, scaled_change
from server_bridge.aggregation.opposition import OppositionRule, bearing_of
from server_bridge.aggregation.screening import Refusal
from server_bridge.cohorts.cohorter import ClientId
from server_bridge.cohorts.membership import CohortId
from server_bridge.flower.near_copies import NearCopyRule, near_copy_words
from server_bridge.flower.updates import ClientUpdate


class Defence:
    """Judges the updates of one cohort beside each other, round by round.

    Args:
        lengths: when an update is shortened; ``None`` for never.
        opposition: when a client is held to work against its cohort; ``None`` for never.
        near_copies: when updates count as one; ``None`` for never.
        unharmed: whether that is asked of every cohort; else only where members have told of harm.
    """

    def __init__(
        self,
        lengths: LengthRule | None = None,
        opposition: OppositionRule | None = None,
        near_copies: NearCopyRule | None = None,
        *,
        unharmed: bool = True,
    ) -> None:
        self._length_rule = lengths
        self._opposition = opposition
        self._near_copies = near_copies
        self._unharmed = unharmed
        self._evidence: dict[ClientId, tuple[CohortId, float]] = {}
        self._lengths: dict[ClientId, float] = {}
        self._counted: dict[ClientId, ClientUpdate] = {}
        self._noted: dict[ClientId, Refusal] = {}

    @property
    def noted(self) -> dict[ClientId, Refusal]:
        """Whose update of the latest round counted, but not as it came, and why."""
        return dict(self._noted)

    def _begin_round(self, updates: Sequence[ClientUpdate]) -> None:
        self._counted, self._noted, self._lengths = {}, {}, {}
        if self._length_rule is not None:
            self._lengths = {update.client: change_length(update.params, update.base) for update in updates}

    def note(self, told: Mapping[ClientId, Refusal]) -> None:
        """Remember for this round's record what was done about clients whose updates count."""
        self._noted |= told

    def opposing(
        self, updates: Sequence[ClientUpdate], leaving: Set[ClientId], harmed: Set[CohortId] = frozenset()
    ) -> dict[ClientId, Refusal]:
        """Who works against its cohort, of those that are about to stay in it; to be asked once a round.

        A cohort that is just being formed is formed by direction: there nobody works against the rest.

        Args:
            updates: of the round.
            leaving: clients that leave their cohorts in it.
            harmed: cohorts of which a step was taken back in this adaptation.
        """
        self._begin_round(updates)
        if self._opposition is None:
            return {}
        cohorts: dict[CohortId, list[ClientUpdate]] = {}
        for update in updates:
            if update.client not in leaving:
                cohorts.setdefault(update.cohort, []).append(update)
        found: dict[ClientId, Refusal] = {}
        for cohort, mine in cohorts.items():
            if len(mine) > 2:
                told = self._opposing(self._opposition, cohort, mine)
                found |= told if self._unharmed or cohort in harmed else {}
        return found

    def counted(self, group: Sequence[ClientUpdate]) -> list[ClientUpdate]:
        """The updates of a cohort as they go into its mean; what is far too long is shortened."""
        if self._length_rule is None:
            return list(group)
        lengths = [self._lengths[update.client] for update in group]
        factors = self._length_rule.factors(lengths, float(np.median(list(self._lengths.values()))))
        for update, factor in zip(group, factors, strict=True):
            if factor < 1:
                self._counted[update.client] = replace(update, params=scaled_change(update.params, update.base, factor))
                self._noted[update.client] = clipped_words(factor)
        return self.as_counted(group)

    def weights(self, group: Sequence[ClientUpdate]) -> list[float]:
        """What the updates of a cohort weigh in its mean: their examples, shared by those that are nearly the same."""
        if self._near_copies is None:
            return [update.examples for update in group]
        shares = self._near_copies.shares([u.params for u in group], [u.base for u in group]).tolist()
        for update, share in zip(group, shares, strict=True):
            if share < 1:
                self._noted[update.client] = near_copy_words(share)
        return [update.examples * share for update, share in zip(group, shares, strict=True)]

    def as_counted(self, updates: Iterable[ClientUpdate]) -> list[ClientUpdate]:
        """Updates as they went into the means of their cohorts."""
        return [self._counted.get(update.client, update) for update in updates]

    def clear(self) -> None:
        """Forget the evidence: an adaptation has ended."""
        self._evidence.clear()

    def export(self) -> list[list[Any]]:
        """The evidence as JSON values."""
        return [[client, cohort, total] for client, (cohort, total) in sorted(self._evidence.items())]

    def restore(self, document: Iterable[Sequence[Any]]) -> None:
        """Become what :meth:`export` described.

        Raises:
            TypeError, ValueError: the document is not one of ours.
        """
        self._evidence = {int(client): (str(cohort), float(total)) for client, cohort, total in document}

    def _opposing(
        self, rule: OppositionRule, cohort: CohortId, mine: Sequence[ClientUpdate]
    ) -> Mapping[ClientId, Refusal]:
        known = {u.client: self._evidence.get(u.client, (cohort, 0.0)) for u in mine}
        before = {client: total for client, (where, total) in known.items() if where == cohort}
        bearing = bearing_of([update.params for update in mine], [update.base for update in mine])
        after, refused = rule.judge([update.client for update in mine], bearing, before)
        self._evidence |= {client: (cohort, total) for client, total in after.items()}
        return refused
