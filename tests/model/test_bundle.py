"""A bundle is written whole or not at all, and every fault of its files is named."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge_agent.errors import DataError, StorageError
from edge_agent.model.bundle import (
    MANIFEST,
    WEIGHTS,
    Bundle,
    file_digests,
    load_bundle,
    store_bundle,
    write_bundle,
)
from edge_agent.wire.tensors import encode_weights

FILES = [
    "drift.safetensors",
    "infer.onnx",
    *(f"train/{name}{kind}.onnx" for name in ("adam", "adamw", "momentum", "sgd") for kind in ("", ".series")),
    WEIGHTS,
]


def files_of(bundle: Bundle) -> dict[str, bytes]:
    return {name: bundle.read(name) for name in bundle.manifest.files}


def rewrite_manifest(bundle: Bundle, change: Callable[[dict[str, Any]], None]) -> None:
    fields = json.loads((bundle.path / MANIFEST).read_bytes())
    change(fields)
    (bundle.path / MANIFEST).write_text(json.dumps(fields))


def test_loading_gives_what_was_written(bundle: Bundle) -> None:
    again = load_bundle(bundle.path, digest=bundle.digest)
    assert again == bundle
    assert sorted(again.manifest.files) == FILES
    assert set(again.initial_weights()) == {"a.w", "b.w", "b.b"}
    assert again.training_graph("adam").optimiser == "adam"


def test_another_digest_is_refused(bundle: Bundle) -> None:
    with pytest.raises(DataError, match=f"has digest {bundle.digest}, {'0' * 64} is expected"):
        load_bundle(bundle.path, digest="0" * 64)


@pytest.mark.parametrize("name", FILES)
def test_corrupt_file_is_named(bundle: Bundle, name: str) -> None:
    damaged = bytearray((bundle.path / name).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (bundle.path / name).write_bytes(damaged)
    with pytest.raises(DataError, match=f"{name} is not the file its manifest lists"):
        load_bundle(bundle.path)


@pytest.mark.parametrize("name", [*FILES, MANIFEST])
def test_absent_file_is_named(bundle: Bundle, name: str) -> None:
    (bundle.path / name).unlink()
    with pytest.raises(DataError, match=f"{name} is absent"):
        load_bundle(bundle.path)


def test_what_is_no_file_is_never_read(bundle: Bundle) -> None:
    path = bundle.path / "infer.onnx"
    for make in (os.mkfifo, lambda place: os.symlink("/dev/zero", place), os.mkdir):
        path.unlink() if path.exists() else None
        make(path)
        with pytest.raises(DataError, match=r"infer\.onnx is no file"):
            load_bundle(bundle.path)


def test_file_that_changes_after_loading_is_refused_when_read(bundle: Bundle) -> None:
    (bundle.path / WEIGHTS).write_bytes(b"other")
    with pytest.raises(DataError, match=f"{WEIGHTS} is not the file"):
        bundle.read(WEIGHTS)


def test_unlisted_file_is_not_read(bundle: Bundle) -> None:
    with pytest.raises(DataError, match=r"lists no file '../c.npz'"):
        bundle.read("../c.npz")


def test_unknown_training_graph_names_the_known(bundle: Bundle) -> None:
    with pytest.raises(DataError, match=r"no training graph 'lamb' \(it has 'sgd', 'momentum', 'adam', 'adamw'\)"):
        bundle.training_graph("lamb")


def test_malformed_manifest_is_named(bundle: Bundle) -> None:
    rewrite_manifest(bundle, lambda fields: fields.pop("loss"))
    with pytest.raises(DataError, match=r"manifest.json: Manifest: loss"):
        load_bundle(bundle.path)


@pytest.mark.parametrize("content", [b"", b"not JSON", b"[]", b"\xff\xfe"])
def test_a_manifest_that_is_none_is_named_with_the_way_out(bundle: Bundle, content: bytes) -> None:
    (bundle.path / MANIFEST).write_bytes(content)
    with pytest.raises(DataError, match=r"manifest.json: ") as caught:
        load_bundle(bundle.path)
    assert "copy the bundle's directory again, whole, or build the bundle again" in caught.value.hint


@pytest.mark.parametrize(("version", "problem"), [("99.0", "needs clma-edge>=99.0"), ("soon", "no version number")])
def test_agent_that_is_too_old_is_told(bundle: Bundle, version: str, problem: str) -> None:
    rewrite_manifest(bundle, lambda fields: fields.update(minimum_agent_version=version))
    with pytest.raises(DataError, match=problem):
        load_bundle(bundle.path)


def test_weights_that_do_not_fit_the_manifest_are_named(bundle: Bundle, tmp_path: Path) -> None:
    weights = bundle.initial_weights() | {"b.w": np.zeros((2, 2), dtype=np.float32)}
    files = files_of(bundle) | {WEIGHTS: encode_weights(weights)}
    manifest = bundle.manifest.model_copy(update={"files": file_digests(files)})
    with pytest.raises(DataError, match=r"tensor 'b.w' has shape \[2, 2\]"):
        write_bundle(tmp_path / "other", manifest, files)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.npz", "mlp"]


def test_taken_directory_is_refused(bundle: Bundle) -> None:
    with pytest.raises(DataError, match="exists and is not empty"):
        write_bundle(bundle.path, bundle.manifest, files_of(bundle))
    assert load_bundle(bundle.path) == bundle


def test_copy_from_elsewhere_keeps_the_manifests_bytes(bundle: Bundle, tmp_path: Path) -> None:
    spaced = json.dumps(json.loads((bundle.path / MANIFEST).read_bytes()), indent=3).encode()
    stored = store_bundle(tmp_path / "deep" / "copy", spaced, files_of(bundle))
    assert (stored.path / MANIFEST).read_bytes() == spaced
    assert stored.digest != bundle.digest


def test_file_outside_the_directory_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="leaves the bundle"):
        store_bundle(tmp_path / "copy", (bundle.path / MANIFEST).read_bytes(), {"../evil": b""})
    assert not (tmp_path / "evil").exists()


class Faults:
    """Fails the k-th durable step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        for name in ("fsync", "rename"):
            monkeypatch.setattr(os, name, self._failing(getattr(os, name)))

    def _failing(self, real: Callable[..., None]) -> Callable[..., None]:
        def step(*arguments: Any) -> None:
            self.left -= 1
            if self.left == 0:
                raise OSError(28, "No space left on device")
            real(*arguments)

        return step


@pytest.mark.parametrize("step", range(1, 17))
def test_failure_at_a_durable_step_leaves_nothing_or_all(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    """Twelve files, two directories, the rename, the parent directory."""
    files, target = files_of(bundle), tmp_path / "copy"
    faults = Faults(monkeypatch)
    faults.left = step
    with pytest.raises(StorageError, match="No space left"):
        write_bundle(target, bundle.manifest, files)
    assert faults.left == 0
    assert not list(tmp_path.glob(".copy*"))
    if step < 16:
        assert not target.exists()
        write_bundle(target, bundle.manifest, files)
    assert load_bundle(target).digest == bundle.digest


def test_no_durable_step_is_missed(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = files_of(bundle)
    faults = Faults(monkeypatch)
    write_bundle(tmp_path / "copy", bundle.manifest, files)
    assert faults.left == -16


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from([*FILES, MANIFEST]), position=st.integers(0, 10**6), flip=st.integers(1, 255))
def test_any_flipped_byte_gives_a_data_error_or_another_address(
    bundle: Bundle, name: str, position: int, flip: int
) -> None:
    path = bundle.path / name
    original = path.read_bytes()
    damaged = bytearray(original)
    damaged[position % len(damaged)] ^= flip
    path.write_bytes(damaged)
    try:
        with pytest.raises(DataError):
            load_bundle(bundle.path, digest=bundle.digest)
    finally:
        path.write_bytes(original)
