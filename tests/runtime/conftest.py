from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_agent.model.bundle import Bundle
from tests.runtime.bench import Parts
from tests.training.tiny_bundle import tiny_bundle


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder: Path = tmp_path_factory.mktemp("bundle")
    return tiny_bundle(folder / "tiny")


@pytest.fixture
def parts(tmp_path: Path, bundle: Bundle) -> Iterator[Parts]:
    one = Parts(tmp_path, bundle)
    yield one
    one.close()
