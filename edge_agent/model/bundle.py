"""A bundle on disk: written whole, addressed by its manifest's digest, checked when read."""

import os
import secrets
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import edge_agent
from edge_agent.drift.arrays import DRIFT_FILE, MonitorArrays, decode_drift_arrays
from edge_agent.errors import DataError, StorageError
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.codec import encode
from edge_agent.wire.errors import WireError
from edge_agent.wire.manifest import MANIFEST_CAP_BYTES, Manifest, TrainingGraphSpec, read_manifest
from edge_agent.wire.tensors import Weights, check_weights, decode_weights

MANIFEST = "manifest.json"
WEIGHTS = "weights.safetensors"
FROZEN = "frozen.safetensors"
"""Tensors that nothing trains and many graphs of the bundle use: they lie outside the graphs, once."""
FILE_CAP_BYTES = 1024 * 1024 * 1024

_A_BUNDLE = "give the directory that `server-bridge bundle build` made"
_WHOLE = "copy the bundle's directory again, whole, or build the bundle again"


@dataclass(frozen=True)
class Bundle:
    """A deployable model: inference graph, training graphs, initial weights, manifest.

    Args:
        path: its directory.
        digest: SHA-256 of the bytes of ``manifest.json``; the bundle's address.
        manifest: what ``manifest.json`` says.
    """

    path: Path
    digest: str
    manifest: Manifest

    def read(self, name: str) -> bytes:
        """A listed file's bytes.

        Raises:
            DataError: not listed, absent, or its digest is not the manifest's (named).
        """
        expected = self.manifest.files.get(name)
        if expected is None:
            raise DataError(f"bundle {self.path} lists no file {name!r}")
        data = _read_capped(self.path / name, FILE_CAP_BYTES)
        if sha256_hex(data) != expected:
            raise DataError(f"{self.path / name} is not the file its manifest lists: the digest differs", _WHOLE)
        return data

    def initial_weights(self) -> Weights:
        """The weights that the bundle came with.

        Raises:
            DataError: the file is corrupt or does not fit the manifest (named).
        """
        try:
            weights = decode_weights(self.read(WEIGHTS))
            check_weights(weights, self.manifest.trainable)
        except WireError as error:
            raise DataError(f"{self.path / WEIGHTS}: {error}") from error
        return weights

    def frozen_tensors(self) -> Weights:
        """All that ``frozen.safetensors`` holds; mostly there is no such file.

        Raises:
            DataError: the file is corrupt.
        """
        if FROZEN not in self.manifest.files:
            return {}
        try:
            return decode_weights(self.read(FROZEN))
        except WireError as error:
            raise DataError(f"{self.path / FROZEN}: {error}") from error

    def frozen(self, graph: str, held: Weights | None = None) -> Weights:
        """The frozen tensors that a graph's file takes from outside.

        Args:
            graph: the file's name.
            held: what :meth:`frozen_tensors` gave, to be shared; read if not given.

        Raises:
            DataError: the file is corrupt, or lacks one (named).
        """
        names = self.manifest.frozen.get(graph, [])
        if not names:
            return {}
        held = self.frozen_tensors() if held is None else held
        if absent := sorted(set(names) - held.keys()):
            raise DataError(f"{self.path / FROZEN} has no tensor {absent[0]!r}, which {graph} needs")
        return {name: held[name] for name in names}

    def drift_arrays(self) -> MonitorArrays:
        """The arrays of its monitors; none where it has no ``drift.safetensors``.

        Raises:
            DataError: the file is absent or corrupt (named).
        """
        return decode_drift_arrays(self.read(DRIFT_FILE)) if DRIFT_FILE in self.manifest.files else {}

    def training_graph(self, name: str) -> TrainingGraphSpec:
        """A training step by name.

        Raises:
            DataError: the bundle has none of that name; those it has are named.
        """
        for graph in self.manifest.training:
            if graph.name == name:
                return graph
        have = ", ".join(repr(graph.name) for graph in self.manifest.training) or "none"
        raise DataError(f"bundle {self.manifest.name!r} has no training graph {name!r} (it has {have})")


def load_bundle(path: Path, *, digest: str | None = None) -> Bundle:
    """Read a bundle and check all of it.

    Args:
        path: its directory.
        digest: the address it must have; any if None.

    Raises:
        DataError: a file is absent, corrupt or inconsistent, or this agent is too old for it (named).
    """
    if not path.is_dir():
        raise DataError(f"bundle {path} is no directory", _A_BUNDLE)
    if not (path / MANIFEST).exists():
        raise DataError(f"{path / MANIFEST} is absent", _A_BUNDLE)
    payload = _read_capped(path / MANIFEST, MANIFEST_CAP_BYTES)
    found = sha256_hex(payload)
    if digest is not None and digest != found:
        raise DataError(f"{path / MANIFEST} has digest {found}, {digest} is expected")
    try:
        manifest = read_manifest(payload)
    except WireError as error:
        raise DataError(f"{path / MANIFEST}: {error}", _WHOLE) from error
    _refuse_old_agent(path, manifest)
    bundle = Bundle(path, found, manifest)
    for name in manifest.files:
        bundle.read(name)
    bundle.initial_weights()
    return bundle


def file_digests(files: Mapping[str, bytes]) -> dict[str, str]:
    """What a manifest's ``files`` must say of these files."""
    return {name: sha256_hex(data) for name, data in sorted(files.items())}


def write_bundle(path: Path, manifest: Manifest, files: Mapping[str, bytes]) -> Bundle:
    """Write a new bundle whole or not at all.

    Args:
        path: a directory that does not exist, or is empty.
        manifest: whose ``files`` are ``file_digests(files)``.
        files: name to bytes, without ``manifest.json``.

    Raises:
        DataError: the path is taken, or the files do not fit the manifest.
        StorageError: it cannot be written.
    """
    return store_bundle(path, encode(manifest), files)


def store_bundle(path: Path, manifest_bytes: bytes, files: Mapping[str, bytes]) -> Bundle:
    """Write a bundle that came from elsewhere, its manifest byte for byte; see `write_bundle`."""
    refuse_taken(path)
    staging = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
    try:
        _write_tree(staging, {**files, MANIFEST: manifest_bytes})
        load_bundle(staging)
        os.rename(staging, path)
        _sync_directory(path.parent)
    except OSError as error:
        raise StorageError(f"bundle {path} cannot be written: {error}") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return load_bundle(path)


def refuse_taken(path: Path) -> None:
    """Before work is done for a bundle that could not be written there.

    Raises:
        DataError: it is a file, or a directory with something in it.
    """
    taken = any(path.iterdir()) if path.is_dir() else path.exists()
    if taken:
        raise DataError(f"{path} exists and is not empty", "choose another directory, or remove it")


def _write_tree(directory: Path, files: Mapping[str, bytes]) -> None:
    directory.mkdir(parents=True)
    directories = {directory}
    for name, data in files.items():
        target = directory / name
        if not target.resolve().is_relative_to(directory.resolve()):
            raise DataError(f"file name {name!r} leaves the bundle")
        target.parent.mkdir(parents=True, exist_ok=True)
        directories.add(target.parent)
        with target.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    for folder in sorted(directories, reverse=True):
        _sync_directory(folder)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_capped(path: Path, cap_bytes: int) -> bytes:
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):  # a device has size 0 and no end, a pipe waits for ever
            raise DataError(f"{path} is no file")
        if found.st_size > cap_bytes:
            raise DataError(f"{path} has {found.st_size} bytes, the cap is {cap_bytes}")
        return path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{path} is absent", _WHOLE) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error}") from error


def _refuse_old_agent(path: Path, manifest: Manifest) -> None:
    needed, present = manifest.minimum_agent_version, edge_agent.__version__
    if _version(path, needed) > _version(path, present):
        raise DataError(f"bundle {path} needs clma-edge>={needed}, this is {present}", "upgrade clma-edge")


def _version(path: Path, text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split("."))
    except ValueError:
        raise DataError(f"{path / MANIFEST}: {text!r} is no version number such as 0.1.0") from None
