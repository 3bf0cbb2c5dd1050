"""Steps that a cohort's members find worse are taken back."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from numpy.typing import NDArray

from server_bridge.aggregation.lengths import scaled_change
from server_bridge.aggregation.screening import STEP_BACK, Refusal
from server_bridge.cohorts.cohorter import ClientId
from server_bridge.cohorts.membership import CohortId, Model
from server_bridge.flower.updates import ClientUpdate

TAKEN_BACK = Refusal(
    STEP_BACK,
    "most members of its cohort found the weights of the round before worse than earlier ones: the cohort went back to "
    "these, and this round's updates did not count",
)


class _Told(NamedTuple):
    """What a member tells of its cohort's weights.

    Attributes:
        client: its node id.
        before: its loss by the best ones so far.
        now: by those that it was sent.
        by_itself: by how much the same weights' loss may have risen meanwhile.
    """

    client: ClientId
    before: float
    now: float
    by_itself: float


@dataclass(frozen=True, slots=True)
class StepRule:
    """When most of a cohort's members find its weights worse than those before.

    Attributes:
        rise: of a member's loss, as a share of what it was, that says so;
        least: and at least so much.
    """

    rise: float = 0.1
    least: float = 0.02

    def worse(self, told: Sequence[_Told], telling: int) -> bool:
        """Whether more than half of ``telling`` members say so; of two, both."""
        votes = sum(one.now - one.before - one.by_itself > max(self.rise * abs(one.before), self.least) for one in told)
        return 2 * votes > telling

    def as_good(self, told: Sequence[_Told]) -> bool:
        """Whether at least half of them say that it is no worse at all."""
        return 2 * sum(one.now <= one.before + one.by_itself for one in told) >= len(told)


@dataclass(slots=True)
class _Kept:
    """The best weights of a cohort by what its members told of them.

    Attributes:
        losses: what members told of them; of who was away then, of the best before.
        risen: by how much members' losses by the same weights rose from one telling to a later one.
        share: of a step that is taken.
        stepped: whether a step has been made from them since they were last sent.
        harmed: whether a step has been taken back.
    """

    model: Model
    losses: dict[ClientId, float]
    share: float = 1.0
    stepped: bool = False
    harmed: bool = False
    risen: dict[ClientId, float] = field(default_factory=dict)

    def told(self, losses: Mapping[ClientId, float]) -> list[_Told]:
        """The losses beside those before, of the members that told both."""
        both = [client for client in losses if client in self.losses]
        return [_Told(c, self.losses[c], losses[c], self.risen.get(c, 0.0)) for c in both]


@dataclass
class StepGuard:
    """Judges each cohort's steps by the losses that members tell of the weights they were sent.

    A step that more than half of them find worse is taken back, and the next from the same weights is half as
    long (a backtracking line search whose objective is told by the members); one that holds doubles it again, up
    to the whole. So whoever pushes a cohort against most of its members, hostile or only unlike, moves it by one step
    at most, for one round. What a member's loss by the weights gone back to has risen since it last told it, its data
    did: by so much, and at most twice as fast as of late, it may rise again without having been made worse.

    Args:
        rule: what counts as worse; ``None`` for never taking back.
    """

    rule: StepRule | None = None
    _kept: dict[CohortId, _Kept] = field(default_factory=dict)

    def judge(self, updates: Iterable[ClientUpdate]) -> dict[CohortId, Model]:
        """The cohorts whose last step is to be taken back, with the weights to go back to.

        Args:
            updates: of a round, without those of clients that leave their cohort.
        """
        cohorts: dict[CohortId, list[ClientUpdate]] = {}
        for update in updates:
            if update.loss is not None:
                cohorts.setdefault(update.cohort, []).append(update)
        if self.rule is None:
            return {}
        back = {cohort: self._judged(self.rule, cohort, mine) for cohort, mine in cohorts.items()}
        return {cohort: model for cohort, model in back.items() if model is not None}

    def _judged(self, rule: StepRule, cohort: CohortId, mine: Sequence[ClientUpdate]) -> Model | None:
        """What the cohort is to go back to, if it is."""
        told = {update.client: update.loss for update in mine if update.loss is not None}
        known = self._kept.setdefault(cohort, _Kept(dict(mine[0].base), told))
        compared = known.told(told)
        if not known.stepped:
            known.risen |= {one.client: max(0.0, one.now - one.before) for one in compared}
            known.losses |= told
            return None
        if rule.worse(compared, len(told)):
            known.share, known.stepped, known.harmed = known.share / 2, False, True
            return known.model
        if rule.as_good(compared):
            known.risen |= {one.client: max(0.0, min(one.by_itself, 2 * (one.now - one.before))) for one in compared}
            known.model, known.share = dict(mine[0].base), min(1.0, 2 * known.share)
            known.losses |= told
        return None

    @property
    def harmed(self) -> set[CohortId]:
        """Cohorts of which a step has been taken back in this adaptation."""
        return {cohort for cohort, known in self._kept.items() if known.harmed}

    def step(self, cohort: CohortId, base: Mapping[str, NDArray[Any]], mean: Model) -> Model:
        """The weights that a cohort goes on with, in a round in which :meth:`judge` did not take a step back.

        Args:
            base: what its members were sent.
            mean: of what they made of it.
        """
        known = self._kept.get(cohort)
        if known is None:
            return mean
        known.stepped = True
        return mean if known.share == 1 else scaled_change(mean, base, known.share)

    def forget(self, living: Iterable[CohortId]) -> None:
        """Let go of cohorts that are no more."""
        names = set(living)
        self._kept = {cohort: known for cohort, known in self._kept.items() if cohort in names}

    def clear(self) -> None:
        """Forget all: an adaptation has ended."""
        self._kept.clear()

    def export(self) -> tuple[list[list[Any]], dict[CohortId, Model]]:
        """JSON values, and the weights that they go with."""
        told = [
            [cohort, k.share, k.stepped, k.harmed, sorted(k.losses.items()), sorted(k.risen.items())]
            for cohort, k in sorted(self._kept.items())
        ]
        return told, {cohort: known.model for cohort, known in self._kept.items()}

    def restore(self, document: Iterable[Sequence[Any]], models: Mapping[CohortId, Model]) -> None:
        """Become what :meth:`export` described.

        Raises:
            KeyError, TypeError, ValueError: the document is not one of ours.
        """
        self._kept = {
            str(cohort): _Kept(
                models[cohort],
                {int(c): float(x) for c, x in losses},
                float(share),
                bool(stepped),
                bool(harmed),
                {int(c): float(x) for c, x in risen},
            )
            for cohort, share, stepped, harmed, losses, risen in document
        }
