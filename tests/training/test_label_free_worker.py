"""A round without labels in a worker process, on a store whose labels never came."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from edge_agent.link.database import open_database
from edge_agent.model.bundle import Bundle
from edge_agent.samples.record import Label, SampleBatch
from edge_agent.samples.store import SampleStore
from edge_agent.serving.server import Served
from edge_agent.training.job import RESULT_FILE, UPDATE_FILE, WorkDone, WorkFailed, read_result
from edge_agent.wire.codec import encode
from edge_agent.wire.manifest import TensorSpec
from edge_agent.wire.updates import decode_update
from tests.training.jobs import training_job
from tests.training.label_free_bundle import CLASSES, FEATURES, gaussian, label_free_bundle

INPUTS = [TensorSpec(name="x", dtype="float32", shape=["batch", FEATURES])]


def _store(path: Path, count: int, labelled: int) -> None:
    """Samples that moved; the first few have labels, and are held out."""
    features, labels = gaussian(count, 5, moved=1.2)
    with closing(open_database(path, synchronous="NORMAL")) as db:
        store = SampleStore(db, inputs=INPUTS, classes=CLASSES, proof_share=0.2, max_samples=10_000, label_wait_s=1e6)
        batch = SampleBatch(
            ids=[f"s{row}" for row in range(count)],
            times=[float(row) for row in range(count)],
            features=dict(features),
            holdouts=[row < labelled for row in range(count)],
        )
        store.add(batch, Served(np.zeros((count, CLASSES), np.float32), "a" * 64, "b" * 64, 1, "root"), now_s=0.0)
        store.label([Label(f"s{row}", int(labels[row])) for row in range(labelled)], now_s=0.0)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return label_free_bundle(tmp_path_factory.mktemp("made") / "net")


def _work(bundle: Bundle, tmp_path: Path, count: int, labelled: int, **changes: object) -> WorkDone | WorkFailed:
    _store(tmp_path / "samples.db", count, labelled)
    job = training_job(
        bundle, tmp_path / "samples.db", **{"training_graph": "entropy-sgd", "batch_size": 32, **changes}
    )
    (tmp_path / "job.json").write_bytes(encode(job))
    program = [sys.executable, "-m", "edge_agent.training.worker", str(tmp_path / "job.json")]
    subprocess.run(program, check=True, timeout=60, capture_output=True)
    return read_result((tmp_path / RESULT_FILE).read_bytes())


def test_samples_whose_labels_never_came_make_an_update_that_labelled_ones_judge(made: Bundle, tmp_path: Path) -> None:
    done = _work(
        made, tmp_path, 400, 60, schedule="fed-ade", learning_rate=0.2, learning_rate_min=0.02, label_shift=False
    )
    assert isinstance(done, WorkDone), done
    assert done.metrics["proof-examples"] == 60
    assert done.metrics["num-examples"] > 200
    assert done.metrics["fed-ade-scaled"] == 1
    assert 0.02 <= done.metrics["fed-ade-rate-mean"] <= 0.2
    assert (tmp_path / UPDATE_FILE).stat().st_size > 100


@pytest.mark.parametrize("graph", ["entropy-head-adam", "pseudo-label-head-sgd"])
def test_the_head_alone_trains_without_labels_on_embeddings_that_are_kept(
    made: Bundle, tmp_path: Path, graph: str
) -> None:
    cache = {"training_graph": graph, "learning_rate": 0.01, "embeddings_file": tmp_path / "embeddings.cache"}
    done = _work(made, tmp_path, 400, 60, **cache)
    assert isinstance(done, WorkDone), done
    samples = done.metrics["num-examples"] + done.metrics["proof-examples"]
    assert done.metrics["embeddings-computed"] == samples
    assert done.metrics["proof-loss-after"] != done.metrics["proof-loss-before"]
    head = [spec for spec in made.manifest.trainable if spec.name in made.training_graph(graph).trainable]
    moved = decode_update((tmp_path / UPDATE_FILE).read_bytes(), "fp16", head)
    assert len(moved) == 2
    assert all(np.abs(delta).max() > 0 for delta in moved.values())


def test_a_store_without_samples_ends_as_too_few(made: Bundle, tmp_path: Path) -> None:
    failed = _work(made, tmp_path, 2, 2)
    assert isinstance(failed, WorkFailed)
    assert failed.reason == "too-few-samples"
