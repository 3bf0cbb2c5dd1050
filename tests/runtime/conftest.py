from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_agent.model.bundle import Bundle
from tests.runtime.bench import Parts
from tests.runtime.desk import Desk
from tests.runtime.local_work_bench import SAMPLES, Bench
from tests.runtime.watched import rules_of, watched_bundle
from tests.runtime.watched_gateway import Gateway
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


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    one = Desk(tmp_path)
    one.orders.start()
    yield one
    one.close()


@pytest.fixture(scope="session")
def whole(bundle: Bundle) -> Bundle:
    """With all monitors."""
    return watched_bundle(bundle)


@pytest.fixture
def gateway(tmp_path: Path, whole: Bundle) -> Iterator[Gateway]:
    one = Gateway(tmp_path, whole, rules_of(whole, label_rows=400))
    yield one
    one.parts.close()


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
