from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_agent.model.bundle import Bundle
from tests.runtime.bench import Parts
from tests.runtime.local_work_bench import SAMPLES, Bench
from tests.training.stored_samples import store_samples
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


@pytest.fixture(scope="module")
def samples_db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("samples")
    store_samples(folder / "samples.db", SAMPLES)
    return folder / "samples.db"


@pytest.fixture
def bench(tmp_path: Path, bundle: Bundle, samples_db: Path) -> Iterator[Bench]:
    one = Bench(tmp_path, bundle, samples_db)
    yield one
    one.close()
