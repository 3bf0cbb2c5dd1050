"""Bringing what a target names into the weights store, checked."""

from collections.abc import Callable

from edge_agent.errors import RejectedUpdate, WireError
from edge_agent.model.bundle import MANIFEST
from edge_agent.ota.fetching import BlobFetcher
from edge_agent.ota.target import Target
from edge_agent.ota.trust import VerifiedMap
from edge_agent.ota.weights_store import WeightsStore
from edge_agent.wire.blobs import BlobReference
from edge_agent.wire.codec import M, decode
from edge_agent.wire.manifest import MANIFEST_CAP_BYTES, read_manifest
from edge_agent.wire.release import TARGET_CAP_BYTES, BundleTarget, bundle_target
from edge_agent.wire.tensors import WEIGHTS_CAP_BYTES, check_weights, decode_weights

BUNDLE_FILE_CAP_BYTES = 1024 * 1024 * 1024


class Staging:
    """Fetches target files, bundles and weights.

    Args:
        forget: removes a blob that has been taken over from the fetcher's store.
    """

    def __init__(self, store: WeightsStore, fetcher: BlobFetcher, forget: Callable[[str], object]) -> None:
        self._store = store
        self._fetcher = fetcher
        self._forget = forget
        self._taken: set[str] = set()

    def target_bytes(self, verified: VerifiedMap, name: str) -> bytes:
        """A target file.

        Raises:
            RejectedUpdate: ``no_target``: the release does not have it; ``too_large``.
            Superseded: something newer came.
            StorageError: the disk refused.
        """
        reference = verified.target(name)
        if reference is None:
            raise RejectedUpdate("no_target", f"the release has no {name}")
        return self._fetch(reference, TARGET_CAP_BYTES)

    def target(self, verified: VerifiedMap, name: str, model: type[M]) -> M:
        """A target file, read.

        Raises:
            RejectedUpdate: as :meth:`target_bytes`; ``malformed``.
        """
        try:
            return decode(model, self.target_bytes(verified, name), cap_bytes=TARGET_CAP_BYTES)
        except WireError as error:
            raise RejectedUpdate("malformed", f"{name}: {error}") from None

    def stage(self, verified: VerifiedMap, target: Target) -> None:
        """Hold the target's bundle and weights, and name them as candidate in the pointer.

        Raises:
            RejectedUpdate: ``unfit_bundle``, ``unfit_weights``, ``malformed``, ``no_target`` or ``too_large``.
            Superseded: something newer came.
            StorageError: the disk refused.
        """
        slot = target.slot
        if self._store.bundle(slot.bundle) is None:
            self._stage_bundle(verified, slot.bundle)
        if not self._store.holds_weights(slot):
            self._stage_weights(target)
        self._store.load(slot)
        self._store.point(self._store.pointer().with_candidate(slot))

    def forget_taken(self) -> None:
        """Remove what was fetched; the work that needed it is done, and the weights store has its own copy."""
        for digest in self._taken:
            self._forget(digest)
        self._taken.clear()

    def _stage_bundle(self, verified: VerifiedMap, digest: str) -> None:
        files = self.target(verified, bundle_target(digest), BundleTarget).files
        if MANIFEST not in files:
            raise RejectedUpdate("unfit_bundle", f"bundle {digest} lists no {MANIFEST}")
        manifest = self._fetch(files[MANIFEST], MANIFEST_CAP_BYTES)
        try:
            needed = read_manifest(manifest).files
        except WireError as error:
            raise RejectedUpdate("unfit_bundle", str(error)) from None
        if set(needed) - set(files):
            raise RejectedUpdate("unfit_bundle", f"bundle {digest} lacks {sorted(set(needed) - set(files))[0]}")
        contents = {name: self._fetch(files[name], BUNDLE_FILE_CAP_BYTES) for name in needed}
        self._store.make_room(digest)
        self._store.add_bundle(digest, contents | {MANIFEST: manifest})

    def _stage_weights(self, target: Target) -> None:
        data = self._fetcher.fetch(target.weights, cap_bytes=WEIGHTS_CAP_BYTES)
        bundle = self._store.bundle(target.slot.bundle)
        if bundle is None:
            raise RejectedUpdate("unfit_bundle", f"bundle {target.slot.bundle} is damaged")
        try:
            check_weights(decode_weights(data), bundle.manifest.trainable)
        except WireError as error:
            raise RejectedUpdate("unfit_weights", str(error)) from None
        self._store.add_weights(data)
        self._taken.add(target.weights.digest)

    def _fetch(self, reference: BlobReference, cap_bytes: int) -> bytes:
        data = self._fetcher.fetch(reference, cap_bytes=cap_bytes)
        self._taken.add(reference.digest)
        return data
