"""Values of personal tensors as immutable files named by their digest; a folder a bundle."""

from collections.abc import Collection
from pathlib import Path

import structlog

from edge_agent.errors import DataError, StorageError, WireError
from edge_agent.link.durable import (
    PRIVATE_MODE,
    FileOperations,
    make_directory,
    read_file,
    remove_directory,
    remove_file,
    write_file,
)
from edge_agent.model.bundle import Bundle
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.roles import names_of, only, personal_specs
from edge_agent.wire.tensors import Weights, check_weights, decode_weights, encode_weights

_log = structlog.get_logger(__name__)


class PersonalFiles:
    """The files in ``directory``; nothing is made before there is something to keep."""

    def __init__(self, directory: Path, files: FileOperations) -> None:
        self._directory = directory
        self._files = files

    def folder(self, bundle: Bundle) -> Path:
        """Where a bundle's values lie, or would."""
        return self._directory / bundle.digest

    def path(self, bundle: Bundle, digest: str) -> Path:
        """Where values lie, or would."""
        return self.folder(bundle) / f"{digest}.safetensors"

    def put(self, bundle: Bundle, values: Weights) -> str:
        """Hold values; returns their digest.

        Raises:
            DataError: a tensor is missing, extra, misshapen or not finite (named).
            StorageError: the disk refused.
        """
        try:
            check_weights(values, personal_specs(bundle.manifest.trainable))
        except WireError as error:
            raise DataError(f"personal values of bundle {bundle.manifest.name!r}: {error.problem}") from None
        data = encode_weights(values)
        digest = sha256_hex(data)
        make_directory(self.folder(bundle), files=self._files)
        if self._read(self.path(bundle, digest)) != data:
            write_file(self.path(bundle, digest), data, mode=PRIVATE_MODE, files=self._files)
        return digest

    def held(self, bundle: Bundle, digest: str) -> Weights | None:
        """Values by their digest; None, and a line in the log, if they are absent, damaged or unfit."""
        data = self._read(self.path(bundle, digest))
        try:
            if data is None or sha256_hex(data) != digest:
                raise WireError("personal values", "absent or damaged")
            values = decode_weights(data)
            check_weights(values, personal_specs(bundle.manifest.trainable))
        except WireError as error:
            _log.error("personal-values-lost", bundle=bundle.digest, values=digest, problem=error.problem)
            return None
        return values

    def keep_only(self, bundle: Bundle, names: Collection[str]) -> None:
        """Remove every file of a bundle's folder but the named; what stays for a disk that refuses goes next time."""
        for path in self.folder(bundle).iterdir():
            if path.name in names:
                continue
            try:
                remove_file(path, files=self._files)
            except StorageError as error:
                _log.warning("personal-values-not-removed", path=str(path), problem=error.problem)

    def keep_bundles(self, digests: Collection[str]) -> None:
        """Remove the folders of all bundles but the named.

        Raises:
            StorageError: the disk refused.
        """
        for folder in self._directory.iterdir() if self._directory.is_dir() else ():
            if folder.name not in digests:
                remove_directory(folder, files=self._files)

    def _read(self, path: Path) -> bytes | None:
        try:
            return read_file(path) if path.exists() else None
        except StorageError as error:
            _log.error("personal-values-unreadable", path=str(path), problem=error.problem)
            return None


def has_personal(bundle: Bundle) -> bool:
    """Whether a bundle has personal tensors."""
    return bool(personal_specs(bundle.manifest.trainable))


def own_values(bundle: Bundle) -> Weights:
    """What the bundle came with."""
    return only(bundle.initial_weights(), names_of(personal_specs(bundle.manifest.trainable)))
