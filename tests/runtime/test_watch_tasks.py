"""A bundle of two tasks: what is watched without labels are the inputs of both."""

from pathlib import Path

import numpy as np
import pytest

from edge_agent.config import MonitorSection
from edge_agent.link.database import open_database
from edge_agent.link.outbox import Outbox
from edge_agent.model.bundle import Bundle
from edge_agent.runtime.watch import DriftWatch
from edge_agent.runtime.watch_rules import watch_rules
from edge_agent.runtime.watch_status import drift_status
from edge_agent.samples.record import SampleBatch
from edge_agent.samples.store import SampleStore
from edge_agent.serving.server import ModelServer
from server_bridge.bundles.tailor.build import TailorSettings, tailor_bundle
from tests.bundles.nets import mlp, save_npz
from tests.bundles.tailor.backbones import two_tasks
from tests.runtime.bench import GATEWAY

SIZE, ROWS = 16, 640
TASKS: dict[str, int | None] = {"press": None, "weld": 3}


@pytest.fixture(scope="module")
def tailored(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("tasks")
    settings = TailorSettings(TASKS, previous=0, name="two", optimisers=("sgd",), monitor_batch=SIZE)
    return tailor_bundle(mlp(), save_npz(folder / "data.npz", **two_tasks(mlp(), ROWS)), settings, folder / "two")


def test_a_drift_of_either_task_is_seen_without_labels(tailored: Bundle, tmp_path: Path) -> None:
    rules = watch_rules(MonitorSection(), tailored)
    database = open_database(tmp_path / "agent.db", synchronous="NORMAL")
    samples = open_database(tmp_path / "samples.db", synchronous="NORMAL")
    store = SampleStore(
        samples, inputs=tailored.manifest.inputs, classes=3, proof_share=0.0, max_samples=10_000, label_wait_s=1e9
    )
    outbox = Outbox(database, GATEWAY, max_bytes=10**7, max_age_s=10**9)
    watch = DriftWatch(database, outbox, store, gateway=GATEWAY, rules=rules)
    server = ModelServer(tailored, tailored.initial_weights(), "a" * 64, 1, "root")
    quiet, moved = two_tasks(mlp(), 20 * SIZE, seed=11), two_tasks(mlp(), 20 * SIZE, seed=12)
    weld = moved["task"] == "weld"
    moved["x"][weld] += 3.0

    found: list[tuple[int, str]] = []
    for data in (quiet, moved):
        for start in range(0, len(data["x"]), SIZE):
            portion = np.arange(start, start + SIZE)
            parts = []
            for task in TASKS:
                rows = portion[data["task"][portion] == task]
                ids = [f"s{len(found)}-{row}" for row in rows]
                batch = SampleBatch(ids, [float(start)] * len(rows), {"x": data["x"][rows]}, tasks=[task] * len(rows))
                parts.append((batch, server.process(batch)))
            watch.consume([], server.active, parts, now_s=float(start))
        free = next(one for one in drift_status(watch).monitors if one.name == "label-free")
        found.append((free.batches, free.level))
    database.close()
    samples.close()

    assert rules.inputs_alone
    assert free.only_task is None
    assert found == [(20, "none"), (40, free.level)]
    assert free.statistic is not None
    assert free.threshold is not None
    assert free.statistic > free.threshold
