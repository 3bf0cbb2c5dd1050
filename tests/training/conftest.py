from pathlib import Path

import pytest

from edge_agent.model.bundle import Bundle
from tests.training.tiny_bundle import tiny_bundle


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder: Path = tmp_path_factory.mktemp("bundle")
    return tiny_bundle(folder / "tiny")
