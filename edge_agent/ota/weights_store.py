"""Bundles and weights on disk, and the pointer file that says which of them are served.

    <directory>/pointer.json                  {active, last_good, previous_good, candidate}
    <directory>/bundles/<digest>/             as in ``edge_agent.model.bundle``
    <directory>/weights/<digest>.safetensors
    <directory>/personal/                     as in ``edge_agent.ota.personal_store``

What the pointer names is never written or removed. The provisioned bundle lies elsewhere, is
never touched, and is the last resort.
"""

from dataclasses import dataclass
from pathlib import Path

import structlog

from edge_agent.errors import DataError, RejectedUpdate, StorageError, WireError
from edge_agent.link.durable import (
    DISK,
    FileOperations,
    make_directory,
    read_file,
    remove_directory,
    remove_file,
    sweep_temporaries,
    write_directory,
    write_file,
)
from edge_agent.model.bundle import MANIFEST, WEIGHTS, Bundle, load_bundle
from edge_agent.ota.personal_store import PersonalStore
from edge_agent.ota.slot import Slot
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.codec import Count, Message, decode, encode
from edge_agent.wire.release import ROOT_COHORT
from edge_agent.wire.roles import overlay
from edge_agent.wire.tensors import Weights, check_weights, decode_weights

WEIGHTS_BUDGET = 4
BUNDLES_BUDGET = 2
FIRST_VERSION = 1
POINTER_FILE = "pointer.json"
_POINTER_CAP_BYTES = 64 * 1024

_log = structlog.get_logger(__name__)


class Pointer(Message):
    """``pointer.json``; ``failed_starts`` counts starts of ``active`` that were not confirmed."""

    active: Slot
    last_good: Slot
    previous_good: Slot | None = None
    candidate: Slot | None = None
    failed_starts: Count = 0

    @property
    def slots(self) -> list[Slot]:
        """Every slot that it names."""
        named = (self.active, self.last_good, self.previous_good, self.candidate)
        return [slot for slot in named if slot is not None]

    def with_candidate(self, slot: Slot | None) -> "Pointer":
        """Holding ``slot`` for activation."""
        return self.model_copy(update={"candidate": slot})

    def activated(self, slot: Slot) -> "Pointer":
        """Serving ``slot``, not yet proven; a slot served already keeps its count of failed starts."""
        failed_starts = self.failed_starts if slot == self.active else 0
        return self.model_copy(update={"active": slot, "candidate": None, "failed_starts": failed_starts})

    def committed(self) -> "Pointer":
        """What is served is proven."""
        if self.active == self.last_good:
            return self
        return self.model_copy(update={"last_good": self.active, "previous_good": self.last_good})


@dataclass(frozen=True, slots=True)
class Loaded:
    """A slot with its bundle and weights in memory, both checked; personal tensors have this gateway's values."""

    slot: Slot
    bundle: Bundle
    weights: Weights


class WeightsStore:
    """The store in ``directory``.

    Args:
        provisioned: the bundle that the gateway came with.

    Attributes:
        personal: this gateway's own values of personal tensors.

    Raises:
        StorageError: the directory cannot be made.
    """

    def __init__(self, directory: Path, provisioned: Bundle, *, files: FileOperations = DISK) -> None:
        self.directory = directory
        self.provisioned = provisioned
        self._files = files
        self._pointer_path = directory / POINTER_FILE
        self._bundles = directory / "bundles"
        self._weights = directory / "weights"
        self.personal = PersonalStore(directory / "personal", files=files)
        for folder in (directory, self._bundles, self._weights):
            make_directory(folder, files=files)
            _sweep(folder)

    @property
    def provisioned_slot(self) -> Slot:
        """The last resort: the provisioned bundle with its own weights, version 1 of the root cohort."""
        digest = self.provisioned.manifest.files[WEIGHTS]
        return Slot(bundle=self.provisioned.digest, weights=digest, cohort=ROOT_COHORT, version=FIRST_VERSION)

    @property
    def is_virgin(self) -> bool:
        """Whether this gateway has never served from this store."""
        return not self._pointer_path.exists()

    def pointer(self) -> Pointer:
        """What the pointer file says; the provisioned bundle if it is absent or damaged."""
        try:
            payload = read_file(self._pointer_path, cap_bytes=_POINTER_CAP_BYTES)
            return decode(Pointer, payload, cap_bytes=_POINTER_CAP_BYTES)
        except (StorageError, WireError):
            return Pointer(active=self.provisioned_slot, last_good=self.provisioned_slot)

    def point(self, pointer: Pointer) -> None:
        """Replace the pointer file in one step.

        Raises:
            StorageError: the disk refused; the old one is untouched.
        """
        write_file(self._pointer_path, encode(pointer), files=self._files)

    def bundle(self, digest: str) -> Bundle | None:
        """A bundle held, checked; ``None`` if it is absent or damaged."""
        if digest == self.provisioned.digest:
            return self.provisioned
        try:
            return load_bundle(self._bundles / digest, digest=digest)
        except DataError:
            return None

    def add_bundle(self, digest: str, contents: dict[str, bytes]) -> Bundle:
        """Hold a bundle that came from elsewhere.

        Args:
            contents: every file by name, ``manifest.json`` included.

        Raises:
            RejectedUpdate: ``unfit_bundle``: it is not what ``digest`` names, or this agent cannot use it.
            StorageError: the disk refused.
        """
        if sha256_hex(contents.get(MANIFEST, b"")) != digest:
            raise RejectedUpdate("unfit_bundle", f"the manifest is not that of bundle {digest}")
        path = self._bundles / digest
        remove_directory(path, files=self._files)
        write_directory(path, contents, files=self._files)
        try:
            return load_bundle(path, digest=digest)
        except DataError as error:
            remove_directory(path, files=self._files)
            raise RejectedUpdate("unfit_bundle", error.problem, error.hint) from None

    def holds_weights(self, slot: Slot) -> bool:
        """Whether the slot's weights are here undamaged, or are its bundle's own."""
        return self._is_held(slot.weights) or self._own_weights(slot)

    def find_weights(self, digest: str) -> bytes | None:
        """The weights of a digest, if they are here undamaged or are the provisioned bundle's own."""
        if self.provisioned.manifest.files[WEIGHTS] == digest:
            return self.provisioned.read(WEIGHTS)
        try:
            return read_file(self._weights_path(digest)) if self._is_held(digest) else None
        except StorageError:  # collected meanwhile
            return None

    def add_weights(self, data: bytes) -> str:
        """Hold a weights file; returns its digest.

        Raises:
            StorageError: the disk refused.
        """
        digest = sha256_hex(data)
        if not self._is_held(digest):
            write_file(self._weights_path(digest), data, files=self._files)
        return digest

    def load(self, slot: Slot) -> Loaded:
        """A slot's bundle and weights, every digest checked, with the personal values that go with them.

        Raises:
            RejectedUpdate: ``unfit_bundle`` or ``unfit_weights``: absent, damaged or unfit (named).
        """
        bundle = self.bundle(slot.bundle)
        if bundle is None:
            raise RejectedUpdate("unfit_bundle", f"bundle {slot.bundle} is absent or damaged")
        try:
            data = self._read_weights(bundle, slot.weights)
            weights = decode_weights(data)
            check_weights(weights, bundle.manifest.trainable)
        except (WireError, StorageError, DataError) as error:
            raise RejectedUpdate("unfit_weights", str(error)) from None
        if sha256_hex(data) != slot.weights:
            raise RejectedUpdate("unfit_weights", f"the file of weights {slot.weights} is damaged")
        return Loaded(slot, bundle, overlay(weights, self.personal.beside(bundle, slot.weights)))

    def adopt_personal(self, slot: Slot, served: Slot, adaptation: str | None) -> None:
        """Decide which personal values go with a slot that is about to serve; see `PersonalStore.adopt`.

        Args:
            served: what serves now.
            adaptation: whose rounds made the slot's weights.

        Raises:
            StorageError: the disk refused.
        """
        bundle = self.bundle(slot.bundle)
        if bundle is not None:
            active = served.weights if served.bundle == slot.bundle else None
            kept = {named.weights for named in self.pointer().slots if named.bundle == slot.bundle}
            self.personal.adopt(bundle, slot.weights, active=active, adaptation=adaptation, kept=kept)

    def give_up_personal(self, slot: Slot, served: Slot) -> bool:
        """Go back to the active personal values beside a slot that cannot serve with its own; whether it had others.

        Raises:
            StorageError: the disk refused.
        """
        bundle = self.bundle(slot.bundle)
        active = served.weights if served.bundle == slot.bundle else None
        return bundle is not None and self.personal.give_up(bundle, slot.weights, active=active)

    def make_room(self, bundle: str) -> None:
        """Give up ``previous_good`` if it is all that keeps a third bundle from the budget.

        Args:
            bundle: the one about to be held.

        Raises:
            StorageError: the disk refused.
        """
        pointer = self.pointer()
        kept = {pointer.active.bundle, pointer.last_good.bundle, bundle}
        if pointer.previous_good is not None and pointer.previous_good.bundle not in kept:
            self.point(pointer.model_copy(update={"previous_good": None}))
        self.collect()

    def collect(self) -> None:
        """Remove the oldest files beyond the budget that the pointer does not name, and what is left of gone bundles.

        Raises:
            StorageError: the disk refused.
        """
        slots = self.pointer().slots
        named = {slot.weights for slot in slots}
        for path in _beyond(self._weights, {f"{digest}.safetensors" for digest in named}, WEIGHTS_BUDGET):
            remove_file(path, files=self._files)
        bundles = {slot.bundle for slot in slots}
        for path in _beyond(self._bundles, bundles, BUNDLES_BUDGET):
            remove_directory(path, files=self._files)
        held = {path.name for path in self._bundles.iterdir()}
        self.personal.collect({*bundles, *held, self.provisioned.digest})

    def _weights_path(self, digest: str) -> Path:
        return self._weights / f"{digest}.safetensors"

    def _is_held(self, digest: str) -> bool:
        path = self._weights_path(digest)
        return path.is_file() and sha256_hex(read_file(path)) == digest

    def _own_weights(self, slot: Slot) -> bool:
        bundle = self.bundle(slot.bundle)
        return bundle is not None and bundle.manifest.files[WEIGHTS] == slot.weights

    def _read_weights(self, bundle: Bundle, digest: str) -> bytes:
        if bundle.manifest.files[WEIGHTS] == digest:
            return bundle.read(WEIGHTS)
        return read_file(self._weights_path(digest))


def _sweep(folder: Path) -> None:
    """What cannot be removed costs space, not service."""
    try:
        sweep_temporaries(folder)
    except StorageError as error:
        _log.warning("not-swept", problem=error.problem, hint=error.hint)


def _beyond(folder: Path, named: set[str], budget: int) -> list[Path]:
    entries = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)
    spare = [path for path in entries if path.name not in named]
    excess = max(0, len(entries) - budget)
    return spare[:excess]
