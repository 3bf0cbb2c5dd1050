"""What CLMA consists of, and what of it is remembered between rounds and between adaptations."""

from collections.abc import Callable
from dataclasses import dataclass

from edge_agent.errors import DataError
from server_bridge.cohorts.membership import CohortRegistry, Model
from server_bridge.flower.defence import Defence
from server_bridge.flower.drifts import DriftBook
from server_bridge.flower.formation import Formation
from server_bridge.flower.known import KnownConcepts
from server_bridge.flower.mixtures import MixtureWatch
from server_bridge.flower.state import StrategyState
from server_bridge.flower.steps import StepGuard


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a strategy that remember something.

    Attributes:
        registry: who is where, and the weights.
        drifts: who has drifted and been regrouped.
        known: what living cohorts know, and who is on trial in them.
        formation: what cohorts began with, and whose split was doubtful.
        defence: who works against its cohort.
        steps: the best weights so far, by the members.
        mixtures: which groups a cohort's updates showed.
    """

    registry: CohortRegistry
    drifts: DriftBook
    known: KnownConcepts
    formation: Formation
    defence: Defence
    steps: StepGuard
    mixtures: MixtureWatch

    def forget(self) -> None:
        """Let go of cohorts that are no more."""
        living = self.registry.cohort_ids
        self.known.forget(living)
        self.formation.forget()
        self.steps.forget(living)
        self.mixtures.forget(living)

    def end_adaptation(self) -> None:
        """Forget what counts within one adaptation."""
        self.drifts.clear()
        self.defence.clear()
        self.steps.clear()
        self.mixtures.clear()
        self.known.end_adaptation()
        self.formation.end_adaptation()

    def export(self, reference: Model | None) -> StrategyState:
        """All that is remembered between two rounds.

        Args:
            reference: the reference model W; ``None`` before a round has ended.
        """
        splits, origins = self.formation.export()
        steps, kept = self.steps.export()
        models = {cohort: dict(self.registry.params(cohort)) for cohort in self.registry.cohort_ids}
        document = {
            "registry": self.registry.export(),
            **self.drifts.export(),
            "splits": splits,
            "known": self.known.export(),
            "opposition": self.defence.export(),
            "steps": steps,
            "mixtures": self.mixtures.export(),
        }
        tensors = {
            **_named("cohort/", models),
            **({} if reference is None else {"reference": dict(reference)}),
            **_named("origin/", origins),
            **_named("trial/", self.known.export_models()),
            **_named("kept/", {cohort: dict(model) for cohort, model in kept.items()}),
        }
        return StrategyState(document=document, tensors=tensors)

    def restore(self, state: StrategyState) -> Model | None:
        """Become what :meth:`export` described; returns its reference model.

        Raises:
            DataError: the state is not of this strategy.
        """
        _translated("state", lambda: self._restore(state))
        return state.tensors.get("reference")

    def _restore(self, state: StrategyState) -> None:
        document = state.document
        self.registry.restore(document["registry"], state.group("cohort/"))
        self.drifts.restore(document)
        if "known" in document:  # absent in a state of an older version
            self.known.restore(document["known"], state.group("trial/"))
        self.defence.restore(document.get("opposition", []))
        self.steps.restore(document.get("steps", []), state.group("kept/"))
        self.mixtures.restore(document.get("mixtures", {}))
        self.formation.restore(document.get("splits", {}), state.group("origin/"))

    def export_memory(self) -> StrategyState:
        """What the next adaptation needs to know of this one, beside memberships and weights."""
        splits, origins = self.formation.export()
        document = {"known": self.known.export_memory(), "splits": splits}
        return StrategyState(document=document, tensors=_named("origin/", origins))

    def restore_memory(self, memory: StrategyState) -> None:
        """Know what an adaptation before left, once its cohorts are in the registry.

        Raises:
            DataError: it is not of this strategy.
        """
        _translated("memory", lambda: self._restore_memory(memory))

    def _restore_memory(self, memory: StrategyState) -> None:
        self.known.restore_memory(memory.document["known"], self.registry.cohort_ids)
        self.formation.restore(memory.document.get("splits", {}), memory.group("origin/"))


def _named(prefix: str, groups: dict[str, Model]) -> dict[str, Model]:
    return {f"{prefix}{name}": group for name, group in groups.items()}


def _translated(what: str, restore: Callable[[], None]) -> None:
    try:
        restore()
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(f"the stored {what} is not CLMA's: {error!r}") from error
