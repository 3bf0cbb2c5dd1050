"""From staged to committed: pointer file first, then the swap, then the proof that it serves."""

from collections.abc import Callable

from edge_agent.errors import DataError, RejectedUpdate
from edge_agent.ota.journal import OtaJournal
from edge_agent.ota.slot import Slot
from edge_agent.ota.transitions import OtaEvent, OtaState
from edge_agent.ota.weights_store import WeightsStore
from edge_agent.serving.server import ModelServer, Prepared


def slot_of(prepared: Prepared) -> Slot:
    """The slot that a prepared model serves."""
    return Slot(bundle=prepared.bundle, weights=prepared.weights, cohort=prepared.cohort, version=prepared.version)


class Activation:
    """Brings a slot that the store holds into service.

    Args:
        on_activated: called on the updater's thread after the swap, before the commit; after a
            fault in between once more, so it must be idempotent.
    """

    def __init__(
        self, store: WeightsStore, server: ModelServer, journal: OtaJournal, on_activated: Callable[[Slot], None]
    ) -> None:
        self._store = store
        self._server = server
        self._journal = journal
        self._on_activated = on_activated

    @property
    def served(self) -> Slot:
        """What serves now."""
        return slot_of(self._server.active)

    def prepare(self, slot: Slot, adaptation: str | None = None) -> Prepared:
        """Build the model beside the active one and try it, with the personal values that are to go with it.

        Values of the rounds that made the weights count only where the model does with them; else the active ones
        stay. A release is never barred for what one gateway has of its own.

        Args:
            adaptation: whose rounds made the slot's weights.

        Raises:
            RejectedUpdate: the bundle or the weights cannot be used.
            StorageError: the disk refused.
        """
        self._store.adopt_personal(slot, self.served, adaptation)
        try:
            return self._tried(slot)
        except RejectedUpdate:
            if not self._store.give_up_personal(slot, self.served):
                raise
            return self._tried(slot)

    def _tried(self, slot: Slot) -> Prepared:
        loaded = self._store.load(slot)
        try:
            return self._server.prepare(loaded.bundle, loaded.weights, slot.weights, slot.version, slot.cohort)
        except DataError as error:
            raise RejectedUpdate("unfit_bundle", error.problem, error.hint) from None

    def activate(self, prepared: Prepared) -> None:
        """Serve a prepared model; the journal is in ``shadow`` and ends in ``committed``.

        Raises:
            StorageError: the disk refused; ``recover`` puts things straight.
        """
        slot = slot_of(prepared)
        self._journal.step(OtaEvent.SHADOW_SKIPPED)
        self._store.point(self._store.pointer().activated(slot))
        self._server.swap(prepared)
        self._on_activated(slot)
        self._journal.step(OtaEvent.SWAPPED)
        self.commit(OtaEvent.PROBATION_SKIPPED)

    def commit(self, event: OtaEvent) -> None:
        """What serves is good: say so in the pointer, end the work on the map, collect.

        Raises:
            StorageError: the disk refused.
        """
        slot = self.served
        pointer = self._store.pointer().activated(slot).committed()
        if pointer != self._store.pointer():
            self._store.point(pointer)
        self._journal.settle(event, slot=slot)
        self._store.collect()

    def recover(self) -> None:
        """After a start or a storage fault in any state: end in a settled one.

        Raises:
            StorageError: the disk refuses still.
        """
        progress = self._journal.progress
        if progress.state in (OtaState.IDLE, OtaState.COMMITTED, OtaState.ROLLED_BACK, OtaState.REFUSED):
            return
        if progress.state in (OtaState.ACTIVATING, OtaState.PROBATION) and progress.slot == self.served:
            self._on_activated(progress.slot)
            self._journal.step(OtaEvent.RESTARTED_NEW)
            self.commit(OtaEvent.PROBATION_SKIPPED)
        else:
            self._journal.step(OtaEvent.RESTARTED_OLD)
            self.drop_candidate()

    def drop_candidate(self) -> None:
        """Make the pointer name what serves, not what was about to.

        Raises:
            StorageError: the disk refused.
        """
        pointer = self._store.pointer()
        served = self.served
        if pointer.active != served or pointer.candidate is not None:
            self._store.point(pointer.model_copy(update={"active": served, "candidate": None}))
