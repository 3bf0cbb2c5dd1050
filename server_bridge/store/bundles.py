"""The bundles that the bridge knows: a folder, one directory a digest."""

import threading
from pathlib import Path

from edge_agent.errors import DataError
from edge_agent.link.durable import read_file
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.errors import WireError
from edge_agent.wire.manifest import MANIFEST_CAP_BYTES, Manifest, TrainableSpec, read_manifest
from edge_agent.wire.roles import graph_named, update_specs
from edge_agent.wire.topics import is_digest
from edge_agent.wire.updates import update_cap_bytes


class BundleFolder:
    """Manifests of installed bundles.

    Args:
        directory: holds ``<digest>/manifest.json``.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._manifests: dict[str, Manifest] = {}

    def __contains__(self, digest: object) -> bool:
        return isinstance(digest, str) and is_digest(digest) and (self._directory / digest / "manifest.json").is_file()

    def path(self, digest: str) -> Path:
        """Where a bundle is, or would be."""
        return self._directory / digest

    def digests(self) -> list[str]:
        """Every bundle that is there."""
        if not self._directory.is_dir():
            return []
        return sorted(path.name for path in self._directory.iterdir() if path.name in self)

    def regressions(self) -> frozenset[str]:
        """The bundles that predict values.

        Raises:
            DataError: a bundle is altered.
        """
        return frozenset(digest for digest in self.digests() if self.manifest(digest).kind == "regression")

    def manifest(self, digest: str) -> Manifest:
        """A bundle's manifest, its digest verified.

        Raises:
            DataError: the bundle is absent or altered.
        """
        with self._lock:
            if digest not in self._manifests:
                self._manifests[digest] = self._read(digest)
            return self._manifests[digest]

    def update_specs(self, digest: str, training_graph: str) -> tuple[TrainableSpec, ...]:
        """The tensors of an update that one of a bundle's training graphs makes.

        Raises:
            DataError: the bundle is absent or altered, has no such graph, or the graph trains nothing that is shared.
        """
        manifest = self.manifest(digest)
        try:
            specs = update_specs(manifest, graph_named(manifest, training_graph))
        except WireError as error:
            raise DataError(f"bundle {digest}: {error.problem}", "set [round] training_graph to one of them") from None
        if not specs:
            raise DataError(
                f"bundle {digest}: training graph {training_graph!r} trains personal tensors only",
                "a round needs a graph that trains something shared: set [round] training_graph",
            )
        return specs

    def update_cap_bytes(self, digest: str, training_graph: str) -> int:
        """The most that an update by this training graph of this bundle may take.

        Raises:
            DataError: as :meth:`update_specs`.
        """
        return update_cap_bytes(self.update_specs(digest, training_graph))

    def _read(self, digest: str) -> Manifest:
        if digest not in self:
            raise DataError(f"bundle {digest} is not in {self._directory}", "install it with `server-bridge init`")
        payload = read_file(self._directory / digest / "manifest.json", cap_bytes=MANIFEST_CAP_BYTES)
        if sha256_hex(payload) != digest:
            raise DataError(f"bundle {digest}: manifest.json has another digest", "copy the bundle again")
        try:
            return read_manifest(payload)
        except WireError as error:
            raise DataError(f"bundle {digest}: {error}") from None
