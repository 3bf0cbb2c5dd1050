"""Bundles of small nets."""

from pathlib import Path

import pytest

from edge_agent.model.bundle import Bundle
from server_bridge.bundles.build import BuildSettings, build_bundle
from tests.bundles.nets import classified, conv1d, mlp, save_npz


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    """An MLP that trains all but its first bias."""
    data = save_npz(tmp_path / "c.npz", **classified(mlp(), 80))
    return build_bundle(mlp(), data, BuildSettings(["*", "!a.b"], "cross-entropy", name="mlp"), tmp_path / "mlp")


@pytest.fixture
def conv_bundle(tmp_path: Path) -> Bundle:
    """A convolutional net that trains everything."""
    data = save_npz(tmp_path / "c.npz", **classified(conv1d(), 80))
    return build_bundle(conv1d(), data, BuildSettings(["*"], "cross-entropy", name="conv"), tmp_path / "conv")
