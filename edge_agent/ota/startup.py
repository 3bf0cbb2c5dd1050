"""Which model to serve when the agent starts."""

from dataclasses import dataclass

from edge_agent.errors import RejectedUpdate, StorageError
from edge_agent.ota.slot import Slot
from edge_agent.ota.weights_store import Loaded, Pointer, WeightsStore

MAX_FAILED_STARTS = 3
_FAILED_STARTS = "failed_starts"


@dataclass(frozen=True, slots=True)
class Fallback:
    """A slot that was given up at start, and why: ``failed_starts`` or what made it unusable."""

    slot: Slot
    reason: str
    detail: str

    @property
    def is_final(self) -> bool:
        """Whether fetching the slot again would not help."""
        return self.reason == _FAILED_STARTS


@dataclass(frozen=True, slots=True)
class Startup:
    """What to serve, and what was given up for it.

    Attributes:
        uncounted: why this start could not be counted against the slot (a full disk); else None.
    """

    loaded: Loaded
    fallbacks: tuple[Fallback, ...]
    uncounted: StorageError | None = None

    @property
    def slot(self) -> Slot:
        """What to serve."""
        return self.loaded.slot


def startup(store: WeightsStore) -> Startup:
    """Choose what to serve: active, else last_good, else previous_good, else the provisioned bundle.

    The start is counted against the chosen slot until :func:`confirm_start`; after three
    unconfirmed starts the slot is given up. The provisioned bundle is never given up.

    Raises:
        DataError: not even the provisioned bundle can be read.
    """
    pointer = store.pointer()
    fallbacks: list[Fallback] = []
    for slot in _choices(pointer):
        attempt = _attempt(store, pointer, slot)
        if isinstance(attempt, Fallback):
            fallbacks.append(attempt)
            continue
        return Startup(attempt, tuple(fallbacks), _count_start(store, pointer, slot))
    slot = store.provisioned_slot
    last_resort = Loaded(slot, store.provisioned, store.provisioned.initial_weights())
    return Startup(last_resort, tuple(fallbacks), _count_start(store, pointer, slot))


def confirm_start(store: WeightsStore) -> None:
    """The model serves: forget earlier failed starts. Call after the first prediction, or after the server is built.

    Raises:
        StorageError: the disk refused.
    """
    pointer = store.pointer()
    if pointer.failed_starts:
        store.point(pointer.model_copy(update={"failed_starts": 0}))


def _choices(pointer: Pointer) -> list[Slot]:
    ordered = [pointer.active, pointer.last_good, pointer.previous_good]
    return list(dict.fromkeys(slot for slot in ordered if slot is not None))


def _attempt(store: WeightsStore, pointer: Pointer, slot: Slot) -> Loaded | Fallback:
    exhausted = slot == pointer.active and pointer.failed_starts >= MAX_FAILED_STARTS
    if exhausted and slot != store.provisioned_slot:
        return Fallback(slot, _FAILED_STARTS, f"{pointer.failed_starts} starts failed")
    try:
        return store.load(slot)
    except RejectedUpdate as error:
        return Fallback(slot, error.reason, error.problem)


def _count_start(store: WeightsStore, pointer: Pointer, slot: Slot) -> StorageError | None:
    if slot == pointer.active:
        counted = pointer.model_copy(update={"failed_starts": pointer.failed_starts + 1})
    else:
        previous = pointer.previous_good if pointer.previous_good != slot else None
        counted = Pointer(active=slot, last_good=slot, previous_good=previous, failed_starts=1)
    try:
        store.point(counted)
    except StorageError as error:
        return error  # a full disk must not keep a good model from serving
    return None
