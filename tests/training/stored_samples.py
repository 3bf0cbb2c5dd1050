"""A sample store on disk with labelled samples of the tiny problem."""

from contextlib import closing
from pathlib import Path

import numpy as np

from edge_agent.link.database import open_database
from edge_agent.samples.record import Label, SampleBatch
from edge_agent.samples.store import SampleStore
from edge_agent.serving.server import Served
from edge_agent.wire.manifest import TensorSpec
from tests.training.tiny_bundle import CLASSES, FEATURES, tiny_samples

INPUTS = [TensorSpec(name="x", dtype="float32", shape=["batch", FEATURES])]


def store_samples(path: Path, count: int, *, holdout_every: int = 5, proof_share: float = 0.2) -> None:
    """Samples ``s0`` ... with their labels; every ``holdout_every``-th is holdout."""
    features, labels = tiny_samples(count)
    with closing(open_database(path, synchronous="NORMAL")) as db:
        store = SampleStore(
            db, inputs=INPUTS, classes=CLASSES, proof_share=proof_share, max_samples=10_000, label_wait_s=1e6
        )
        batch = SampleBatch(
            ids=[f"s{row}" for row in range(count)],
            times=[float(row) for row in range(count)],
            features=dict(features),
            holdouts=[row % holdout_every == 0 for row in range(count)],
        )
        outputs = np.zeros((count, CLASSES), np.float32)
        store.add(batch, Served(outputs, "a" * 64, "b" * 64, 1, "root"), now_s=0.0)
        store.label([Label(f"s{row}", int(label)) for row, label in enumerate(labels)], now_s=0.0)
