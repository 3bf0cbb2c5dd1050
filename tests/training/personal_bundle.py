"""The tiny bundle with its bias, or its matrix, personal."""

from pathlib import Path

from edge_agent.model.bundle import Bundle, write_bundle
from edge_agent.wire.tensors import Weights
from tests.training.tiny_bundle import tiny_bundle


def personal_bundle(path: Path, weights: Weights | None = None, *, personal: str = "b") -> Bundle:
    """Write and load the bundle."""
    plain = tiny_bundle(path.with_name(f"{path.name}.plain"), weights)
    manifest = plain.manifest
    trainable = [
        spec.model_copy(update={"role": "personal" if spec.name == personal else "shared"})
        for spec in manifest.trainable
    ]
    files = {name: plain.read(name) for name in manifest.files}
    return write_bundle(path, manifest.model_copy(update={"trainable": trainable, "name": "personal"}), files)
