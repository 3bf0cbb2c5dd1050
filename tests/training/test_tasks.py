"""Rounds and evaluations of one task among several."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from edge_agent.errors import DataError
from edge_agent.link.database import open_database
from edge_agent.link.durable import read_file, write_file
from edge_agent.model.bundle import Bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.samples.record import Label, Part, SampleBatch, SampleSet
from edge_agent.samples.store import SampleStore
from edge_agent.serving.server import Served
from edge_agent.training.evaluation import evaluate
from edge_agent.training.job import RESULT_FILE, UPDATE_FILE, WorkDone, read_result
from edge_agent.training.tasks import evaluate_tasks, of_its_task
from edge_agent.wire.codec import encode
from edge_agent.wire.tasks import seen_by, task_classes
from edge_agent.wire.updates import decode_update
from tests.bundles.tailor.backbones import residual, tailored_bundle, two_tasks
from tests.training.jobs import evaluation_job, training_job


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return tailored_bundle(tmp_path_factory.mktemp("tasks"), residual())


@pytest.fixture(scope="module")
def samples_db(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, data = tmp_path_factory.mktemp("samples") / "samples.db", two_tasks(residual(), 120)
    with closing(open_database(path, synchronous="NORMAL")) as db:
        store = SampleStore(
            db,
            inputs=bundle.manifest.inputs,
            classes=bundle.manifest.classes,
            proof_share=0.2,
            max_samples=1000,
            label_wait_s=1e6,
            task_classes=task_classes(bundle.manifest),
        )
        for task, width in (("press", 4), ("weld", 3)):
            rows = np.flatnonzero(data["task"] == task).tolist()
            batch = SampleBatch(
                [f"s{row}" for row in rows],
                [float(row) for row in rows],
                {"x": data["x"][rows]},
                tasks=[task] * len(rows),
            )
            store.add(batch, Served(np.zeros((len(rows), width), np.float32), "a" * 64, "b" * 64, 1, "root"), 0.0)
        store.label([Label(f"s{row}", int(label)) for row, label in enumerate(data["label"])], 0.0)
    return path


def test_a_tasks_graph_keeps_to_its_tasks_samples(bundle: Bundle, samples_db: Path) -> None:
    job = training_job(bundle, samples_db, training_graph="weld-sgd")
    assert of_its_task(job, bundle).task == "weld"
    assert of_its_task(job.model_copy(update={"task": "weld"}), bundle).task == "weld"
    with pytest.raises(DataError, match="'weld-sgd' is of task 'weld', the order of 'press'"):
        of_its_task(job.model_copy(update={"task": "press"}), bundle)


def test_weights_are_evaluated_task_by_task_and_in_all(bundle: Bundle) -> None:
    data = two_tasks(residual(), 30)
    tasks: list[str | None] = [None if task == "press" else str(task) for task in data["task"]]
    everything = SampleSet({"x": data["x"]}, data["label"], [str(row) for row in range(30)], Part.PROOF, tasks)
    weights = bundle.initial_weights()
    found = evaluate_tasks(bundle, weights, everything, threads=1)
    total = 0.0
    for task in ("press", "weld"):
        rows = data["task"] == task
        model = InferenceModel(bundle, weights, task=task)
        alone = evaluate(model, seen_by(bundle.manifest, task), {"x": data["x"][rows]}, data["label"][rows])
        assert found[f"loss.{task}"] == pytest.approx(alone.loss, rel=1e-12)
        assert (found[f"num-examples.{task}"], found[f"accuracy.{task}"]) == (15, alone.accuracy)
        total += alone.loss * 15
    assert found["num-examples"] == 30
    assert found["loss"] == pytest.approx(total / 30, rel=1e-12)


def test_the_worker_trains_one_task_and_sends_its_tensors_alone(
    bundle: Bundle, samples_db: Path, tmp_path: Path
) -> None:
    job = training_job(
        bundle, samples_db, training_graph="weld-sgd", send_worse=True, learning_rate=0.05, coding="fp32"
    )
    write_file(tmp_path / "job.json", encode(job))
    subprocess.run([sys.executable, "-m", "edge_agent.training.worker", tmp_path / "job.json"], check=True, timeout=60)
    result = read_result(read_file(tmp_path / RESULT_FILE))
    assert isinstance(result, WorkDone), result
    assert 30 < result.metrics["num-examples"] < 60
    own = [spec for spec in bundle.manifest.trainable if spec.role == "task:weld"]
    update = decode_update(read_file(tmp_path / UPDATE_FILE), "fp32", own)
    assert all(np.abs(tensor).max() > 0 for tensor in update.values())


def test_the_worker_evaluates_every_task_by_its_own_graph(bundle: Bundle, samples_db: Path, tmp_path: Path) -> None:
    write_file(tmp_path / "job.json", encode(evaluation_job(bundle, samples_db)))
    subprocess.run([sys.executable, "-m", "edge_agent.training.worker", tmp_path / "job.json"], check=True, timeout=60)
    result = read_result(read_file(tmp_path / RESULT_FILE))
    assert isinstance(result, WorkDone), result
    counts = [result.metrics[f"num-examples.{task}"] for task in ("press", "weld")]
    assert sum(counts) == result.metrics["num-examples"]
    assert min(counts) > 0
