"""What may go wrong around a round, each with the real worker process."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_agent.errors import StorageError
from edge_agent.model.bundle import Bundle
from edge_agent.samples.chunk import PART_NUMBERS, Chunk
from edge_agent.samples.record import Part
from edge_agent.training.job import JOB_FILE, RESULT_FILE, Lineage, read_result
from edge_agent.training.residual import decode_residual
from edge_agent.training.supervisor import TrainingSupervisor
from edge_agent.wire.updates import decode_update
from tests.e2e.test_storage_faults import disk
from tests.samples.inside import rewrite, wrong_but_for_holdout
from tests.training.jobs import evaluation_job, training_job
from tests.training.rounds import LONG_EPOCHS, WAIT_S, run, wait_for_outcome, worker_pids
from tests.training.stored_samples import store_samples
from tests.training.tiny_bundle import tiny_bundle

LINE = Lineage(bundle="a" * 64, training_graph="sgd", adaptation="a1", cohort="root", round=1)


def relabelled(path: Path, change: Callable[[Chunk], None]) -> Path:
    """A store of 100 samples some of whose labels are others."""
    store_samples(path, 100)
    rewrite(path, change)
    return path


def without_labels(chunk: Chunk, rows: NDArray[np.bool_]) -> None:
    chunk.arrivals[rows] = 0


def all_of_class_two(chunk: Chunk) -> None:
    chunk.labels[:] = 2


def test_without_any_label_a_round_is_refused_with_its_counts(
    supervisor: TrainingSupervisor, bundle: Bundle, tmp_path: Path
) -> None:
    path = relabelled(tmp_path / "s.db", lambda chunk: without_labels(chunk, chunk.parts >= 0))
    outcome = run(supervisor, training_job(bundle, path, min_samples=7))
    assert (outcome.reason, outcome.detail) == ("too-few-samples", "0 of 7")
    outcome = run(supervisor, evaluation_job(bundle, path))
    assert outcome.reason == "too-few-samples"


def test_labels_of_some_samples_are_enough(supervisor: TrainingSupervisor, bundle: Bundle, tmp_path: Path) -> None:
    holdout = PART_NUMBERS[Part.HOLDOUT]
    path = relabelled(
        tmp_path / "s.db",
        lambda chunk: without_labels(chunk, (np.arange(chunk.first, chunk.end) % 4 != 0) | (chunk.parts == holdout)),
    )
    outcome = run(supervisor, training_job(bundle, path))
    assert outcome.ok, outcome
    assert outcome.metrics["num-examples"] < 25


def test_a_single_class_is_trained_on_and_told_or_refused_by_setting(
    supervisor: TrainingSupervisor, bundle: Bundle, tmp_path: Path
) -> None:
    path = relabelled(tmp_path / "s.db", all_of_class_two)
    outcome = run(supervisor, training_job(bundle, path))
    assert outcome.ok, outcome
    assert outcome.metrics["classes-seen"] == 1
    refused = run(supervisor, training_job(bundle, path, min_classes=2))
    assert (refused.reason, refused.detail[:6]) == ("too-few-classes", "1 of 2")


@pytest.mark.parametrize(("batch_size", "max_samples"), [(1, 20), (32, 1), (5, 6)])
def test_batches_of_one_and_a_lonely_sample_train(
    supervisor: TrainingSupervisor, bundle: Bundle, samples_db: Path, batch_size: int, max_samples: int
) -> None:
    job = training_job(bundle, samples_db, batch_size=batch_size, max_samples=max_samples, min_samples=1)
    outcome = run(supervisor, job)
    assert outcome.ok, outcome
    assert outcome.metrics["num-examples"] == max_samples


def test_a_round_on_wrong_labels_made_things_worse_and_sends_nothing_unless_asked(
    supervisor: TrainingSupervisor, bundle: Bundle, tmp_path: Path
) -> None:
    path = relabelled(tmp_path / "s.db", wrong_but_for_holdout)
    job = training_job(bundle, path, epochs=5)
    outcome = run(supervisor, job)
    assert (outcome.ok, outcome.reason, outcome.update) == (False, "made-worse", None)
    assert outcome.metrics["proof-loss-after"] > outcome.metrics["proof-loss-before"]
    assert outcome.metrics["proof-accuracy-after"] <= outcome.metrics["proof-accuracy-before"]
    assert (outcome.metrics["proof-examples"], outcome.metrics["made-worse"]) == (20, 1)
    assert "20 held-out samples" in outcome.detail
    asked = run(supervisor, job.model_copy(update={"send_worse": True}))
    assert asked.ok
    assert asked.update is not None
    assert asked.metrics["made-worse"] == 1


def test_what_a_coding_lost_goes_with_the_next_round_of_the_line_only(
    supervisor: TrainingSupervisor, bundle: Bundle, samples_db: Path, tmp_path: Path
) -> None:
    job = training_job(bundle, samples_db, coding="int8", lineage=LINE)
    first = run(supervisor, job)
    assert first.residual is not None
    assert 0 < first.metrics["coding-error"] < 0.02
    kept = tmp_path / "kept"
    shutil.copy(first.residual, kept)
    _, residual = decode_residual(kept.read_bytes())
    plain = training_job(bundle, samples_db, coding="fp32", lineage=LINE.model_copy(update={"round": 2}))
    updates = []
    for changes in ({}, {"residual_file": kept}, {"residual_file": kept, "lineage": LINE}):
        outcome = run(supervisor, plain.model_copy(update=changes))
        assert outcome.update is not None
        updates.append(decode_update(outcome.update.read_bytes(), "fp32", bundle.manifest.trainable))
    alone, with_it, same_round = updates
    for name, tensor in alone.items():
        np.testing.assert_array_equal(with_it[name], tensor + residual[name])
        np.testing.assert_array_equal(same_round[name], tensor)
    kept.write_bytes(kept.read_bytes()[:-3])
    assert run(supervisor, plain.model_copy(update={"residual_file": kept})).ok


def test_a_full_disk_is_named_by_the_worker_and_by_the_start(bundle: Bundle, samples_db: Path, tmp_path: Path) -> None:
    with disk(tmp_path / "disk") as under:
        supervisor = TrainingSupervisor(under.folder / "jobs")
        supervisor.start(training_job(bundle, samples_db, epochs=400))  # not done before the disk is full
        under.refuse("full" if under.mounted else "closed")
        outcome = wait_for_outcome(supervisor)
        assert (outcome.ok, outcome.reason) == (False, "storage"), outcome.detail
        with pytest.raises(StorageError):
            supervisor.start(training_job(bundle, samples_db, command_id="c2"))
        assert not supervisor.busy
        under.allow()
        assert run(supervisor, training_job(bundle, samples_db)).ok


@pytest.mark.parametrize("damage", ["cut", "no database"])
def test_a_damaged_store_ends_the_round_and_is_named(
    supervisor: TrainingSupervisor, bundle: Bundle, tmp_path: Path, damage: str
) -> None:
    path = tmp_path / "s.db"
    store_samples(path, 400)
    size = path.stat().st_size
    path.write_bytes({"cut": path.read_bytes()[: size // 2], "no database": b"x" * 9000}[damage])
    outcome = run(supervisor, training_job(bundle, path))
    assert (outcome.ok, outcome.reason) == (False, "storage")
    assert "s.db" in outcome.detail


@pytest.mark.parametrize("file", ["train/sgd.onnx", "manifest.json", "weights.safetensors"])
def test_a_damaged_bundle_or_weights_file_is_refused_by_its_digest(
    supervisor: TrainingSupervisor, samples_db: Path, tmp_path: Path, file: str
) -> None:
    bundle = tiny_bundle(tmp_path / "bundle")
    job = training_job(bundle, samples_db)
    damaged = bytearray((bundle.path / file).read_bytes())
    damaged[len(damaged) // 2] ^= 1
    (bundle.path / file).write_bytes(damaged)
    outcome = run(supervisor, job)
    assert (outcome.ok, outcome.reason) == (False, "bad-job")
    assert "digest" in outcome.detail


@pytest.mark.parametrize("changes", [{"cut": 100}, {"cut": 1}, {"batch_size": 0}, {"epochs": 0}, {"seed": -1}])
def test_a_cut_or_senseless_job_gives_a_result_that_says_so(
    bundle: Bundle, samples_db: Path, tmp_path: Path, changes: dict[str, int]
) -> None:
    job = json.loads(training_job(bundle, samples_db).model_dump_json())
    text = json.dumps({**job, **changes})
    (tmp_path / JOB_FILE).write_text(text[: -changes["cut"]] if "cut" in changes else text)
    subprocess.run(
        [sys.executable, "-m", "edge_agent.training.worker", str(tmp_path / JOB_FILE)], check=True, timeout=60
    )
    result = read_result((tmp_path / RESULT_FILE).read_bytes())
    assert not result.ok
    assert result.reason == "bad-job"


def test_a_worker_tells_its_progress_ends_itself_in_time_with_what_it_has_and_gives_the_memory_back(
    supervisor: TrainingSupervisor, bundle: Bundle, samples_db: Path
) -> None:
    began_s = time.monotonic()
    run(supervisor, training_job(bundle, samples_db))
    duration_s = max(8.0, 4 * (time.monotonic() - began_s))  # on a slow machine a worker's start alone takes seconds
    before = resident_bytes()
    supervisor.start(training_job(bundle, samples_db, epochs=LONG_EPOCHS, duration_s=duration_s))
    deadline_s, told = time.monotonic() + duration_s + WAIT_S, []
    while (outcome := supervisor.poll()) is None:
        assert time.monotonic() < deadline_s
        told.append(supervisor.progress)
        time.sleep(0.02)
    steps = [progress.steps for progress in told if progress is not None]
    assert outcome.ok, outcome  # told to end at its duration, it would have left nothing
    assert outcome.update is not None
    assert outcome.metrics["loss-after"] < outcome.metrics["clma-loss"]
    assert len(set(steps)) >= 2
    assert steps == sorted(steps)
    assert outcome.metrics["epochs-done"] >= steps[-1] / 10
    assert worker_pids(os.getpid()) == []
    assert resident_bytes() - before < 4 * 1024 * 1024


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
