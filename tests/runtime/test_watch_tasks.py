"""A bundle of two tasks: what is watched without labels are the inputs of both, and what is said of each."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_agent.config import MonitorSection
from edge_agent.link.database import open_database
from edge_agent.link.outbox import Outbox
from edge_agent.model.bundle import Bundle
from edge_agent.runtime.drift_status import MonitorStatus
from edge_agent.runtime.watch import DriftWatch
from edge_agent.runtime.watch_rules import watch_rules
from edge_agent.runtime.watch_status import drift_status
from edge_agent.samples.record import SampleBatch
from edge_agent.samples.store import SampleStore
from edge_agent.serving.server import ModelServer, Served
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


Data = Mapping[str, NDArray[Any]]
Changed = Callable[[str, Served], Served]


class Gateway:
    """A watch over a bundle of two tasks and the server that feeds it."""

    def __init__(self, bundle: Bundle, folder: Path) -> None:
        self.rules = watch_rules(MonitorSection(), bundle)
        self.database = open_database(folder / "agent.db", synchronous="NORMAL")
        self.samples = open_database(folder / "samples.db", synchronous="NORMAL")
        inputs = bundle.manifest.inputs
        store = SampleStore(
            self.samples, inputs=inputs, classes=3, proof_share=0.0, max_samples=10_000, label_wait_s=1e9
        )
        outbox = Outbox(self.database, GATEWAY, max_bytes=10**7, max_age_s=10**9)
        self.watch = DriftWatch(self.database, outbox, store, gateway=GATEWAY, rules=self.rules)
        self.server = ModelServer(bundle, bundle.initial_weights(), "a" * 64, 1, "root")
        self.served = 0

    def serve(self, data: Data, changed: Changed = lambda task, served: served) -> MonitorStatus:
        """Serve rows in portions of a task each; what the label-free monitor says then."""
        for start in range(0, len(data["x"]), SIZE):
            portion = np.arange(start, start + SIZE)
            parts = []
            for task in TASKS:
                rows = portion[data["task"][portion] == task]
                ids = [f"s{self.served}-{row}" for row in rows]
                times = [float(self.served)] * len(rows)
                batch = SampleBatch(ids, times, {"x": data["x"][rows]}, tasks=[task] * len(rows))
                if len(rows):
                    parts.append((batch, changed(task, self.server.process(batch))))
            self.watch.consume([], self.server.active, parts, now_s=float(self.served))
            self.served += SIZE
        return next(one for one in drift_status(self.watch).monitors if one.name == "label-free")


@pytest.fixture
def gateway(tailored: Bundle, tmp_path: Path) -> Iterator[Gateway]:
    made = Gateway(tailored, tmp_path)
    yield made
    made.database.close()
    made.samples.close()


def test_a_drift_of_either_task_is_seen_without_labels(gateway: Gateway) -> None:
    quiet, moved = two_tasks(mlp(), 20 * SIZE, seed=11), two_tasks(mlp(), 20 * SIZE, seed=12)
    weld = moved["task"] == "weld"
    moved["x"][weld] += 3.0

    before, free = gateway.serve(quiet), gateway.serve(moved)

    assert gateway.rules.answers is not None
    assert not gateway.rules.inputs_alone
    assert free.only_task is None
    assert (before.batches, before.level, free.batches) == (20, "none", 40)
    assert free.statistic is not None
    assert free.threshold is not None
    assert free.statistic > free.threshold


def test_what_is_said_of_one_task_alone_is_seen_beside_the_other(gateway: Gateway) -> None:
    quiet, later = two_tasks(mlp(), 20 * SIZE, seed=11), two_tasks(mlp(), 20 * SIZE, seed=13)

    def doubtful(task: str, served: Served) -> Served:
        return replace(served, outputs=served.outputs * np.float32(0.2)) if task == "weld" else served

    before, free = gateway.serve(quiet), gateway.serve(later, doubtful)

    assert before.level == "none"
    assert free.statistic is not None
    assert free.threshold is not None
    assert free.statistic > free.threshold
    assert any("for its task" in one.name for one in free.attributions)


def test_which_task_comes_how_often_is_no_drift(gateway: Gateway) -> None:
    """Both tasks' inputs are alike here; of one alone answers have the level and deviation that those of both have."""
    quiet = two_tasks(mlp(), 40 * SIZE, seed=14)
    quiet["task"][:] = "weld"

    free = gateway.serve(quiet)

    assert (free.batches, free.level) == (40, "none")
