from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_agent.model.bundle import Bundle
from edge_agent.training.supervisor import TrainingSupervisor
from tests.training.stored_samples import store_samples
from tests.training.tiny_bundle import tiny_bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder: Path = tmp_path_factory.mktemp("bundle")
    return tiny_bundle(folder / "tiny")


@pytest.fixture(scope="module")
def samples_db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of 100 samples."""
    folder: Path = tmp_path_factory.mktemp("samples")
    store_samples(folder / "samples.db", 100)
    return folder / "samples.db"


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[TrainingSupervisor]:
    one = TrainingSupervisor(tmp_path / "jobs")
    yield one
    one.stop()
