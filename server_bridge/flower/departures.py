"""Who leaves its cohort in a round before the cohorts are averaged, and why."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from server_bridge.aggregation.screening import Refusal
from server_bridge.cohorts.cohorter import ClientId
from server_bridge.cohorts.membership import CohortId, Model
from server_bridge.flower.parts import Parts
from server_bridge.flower.trials import Refuted
from server_bridge.flower.updates import ClientUpdate


@dataclass(frozen=True, slots=True)
class Departures:
    """What a round's replies say about who may stay where it is.

    Attributes:
        regrouped: clients that the cohorter groups anew: they drifted, work against their cohort, or it is mixed.
        refuted: clients, by group, that were recognised a round ago and for whom the cohort's model is no good.
        refused: clients that work against their cohort although this adaptation has regrouped them before; their
            updates do not count.
        back: cohorts whose last step is taken back, with the weights to go back to.
    """

    regrouped: set[ClientId]
    refuted: Sequence[Sequence[tuple[ClientUpdate, Refuted]]]
    refused: Mapping[ClientId, Refusal]
    back: Mapping[CohortId, Model]

    @property
    def leaving(self) -> set[ClientId]:
        """Clients that are not averaged with their cohorts."""
        return self.regrouped | _clients(self.refuted)

    def counting(self, updates: Iterable[ClientUpdate]) -> list[ClientUpdate]:
        """The updates that are not refused."""
        return [update for update in updates if update.client not in self.refused]


def departures(parts: Parts, server_round: int, updates: Sequence[ClientUpdate]) -> Departures:
    """Ask every part once, in the order in which one's answer bears on the next.

    Flags first, then trials; of who stays then, whether members found the last step worse, who works against the
    others, and whether its cohort holds several concepts.
    """
    known, drifts, defence = parts.known, parts.drifts, parts.defence
    settled = known.moved | known.stayed
    drifted = drifts.drifted(server_round, updates) - settled
    drifts.regroup(known.moved & {update.client for update in updates})
    known.learn(updates, drifted)
    refuted = known.refuted(update for update in updates if update.client not in drifted)
    leaving = drifted | _clients(refuted)
    back = parts.steps.judge(update for update in updates if update.client not in leaving)
    opposing = defence.opposing(updates, leaving, parts.steps.harmed)
    parted = set(opposing) - settled - drifts.regrouped
    defence.note({client: opposing[client] for client in parted})
    elsewhere = leaving | set(opposing) | settled | known.on_trial
    mixed = parts.mixtures.look(u for u in updates if u.client not in elsewhere and u.cohort not in back)
    defence.note(mixed)
    refused = {client: why for client, why in opposing.items() if client not in parted}
    return Departures(drifted | parted | set(mixed), refuted, refused, back)


def _clients(groups: Iterable[Iterable[tuple[ClientUpdate, Refuted]]]) -> set[ClientId]:
    return {update.client for group in groups for update, _ in group}
