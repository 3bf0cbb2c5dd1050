import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from edge_agent.errors import TransientError
from edge_agent.model.bundle import Bundle
from edge_agent.training.job import TrainingJob
from edge_agent.training.supervisor import ALLOCATION_FAILED, TrainingSupervisor
from edge_agent.wire.updates import decode_update
from tests.training.jobs import evaluation_job, training_job
from tests.training.rounds import LONG_EPOCHS, WAIT_S, process_of, run, wait_for_outcome, worker_pids
from tests.training.stored_samples import store_samples
from tests.training.tiny_bundle import numpy_loss, tiny_samples, tiny_weights


def test_a_round_gives_an_update_that_lowers_the_loss(
    supervisor: TrainingSupervisor, bundle: Bundle, samples_db: Path
) -> None:
    outcome = run(supervisor, training_job(bundle, samples_db, coding="fp32"))
    assert outcome.ok, outcome
    assert not supervisor.busy
    assert outcome.update is not None
    delta = decode_update(outcome.update.read_bytes(), "fp32", bundle.manifest.trainable)
    norm = np.sqrt(sum(np.square(tensor, dtype=np.float64).sum() for tensor in delta.values()))
    assert outcome.metrics["update-norm"] == pytest.approx(norm, rel=1e-6)
    assert outcome.metrics["loss-after"] < outcome.metrics["clma-loss"]
    assert 40 <= outcome.metrics["num-examples"] < 80
    told = {"num-examples", "clma-loss", "loss-after", "update-norm", "train-duration-s"}
    assert told <= set(outcome.metrics)


def test_samples_before_the_drift_are_not_trained_on(
    supervisor: TrainingSupervisor, bundle: Bundle, samples_db: Path
) -> None:
    whole = run(supervisor, training_job(bundle, samples_db))
    late = run(supervisor, training_job(bundle, samples_db, from_sample="s60"))
    assert 0 < late.metrics["num-examples"] < 0.6 * whole.metrics["num-examples"]


def test_an_evaluation_counts_holdout_samples_and_leaves_no_update(
    supervisor: TrainingSupervisor, bundle: Bundle, samples_db: Path
) -> None:
    outcome = run(supervisor, evaluation_job(bundle, samples_db))
    assert outcome.ok, outcome
    assert outcome.update is None
    assert outcome.metrics["num-examples"] == 20
    assert set(outcome.metrics) == {"num-examples", "loss", "loss-error", "accuracy"}


@pytest.mark.parametrize(
    ("changes", "reason", "detail"),
    [
        ({"min_samples": 5000}, "too-few-samples", "of 5000"),
        ({"from_sample": "unknown"}, "too-few-samples", "0 of"),
        ({"learning_rate": 3e38}, "non-finite", "loss"),
        ({"training_graph": "adam"}, "bad-job", "'adam'"),
        ({"learning_rate": 1e39}, "bad-job", "learning rate 1e+39"),
        ({"scalars": {"momentum": 0.5}}, "bad-job", "no scalar 'momentum'"),
        ({"schedule": "fed-ade", "learning_rate_min": 1.0}, "bad-job", "rates from 1 to 0.5"),
        ({"weights": "0" * 64}, "bad-job", "digest"),
        ({"bundle": "0" * 64}, "bad-job", "digest"),
        ({"weights_file": "/nonexistent/w"}, "storage", "/nonexistent/w"),
        ({"samples_db": "/nonexistent/s.db"}, "storage", "/nonexistent/s.db"),
    ],
)
def test_a_round_that_comes_to_nothing_says_why(
    supervisor: TrainingSupervisor,
    bundle: Bundle,
    samples_db: Path,
    changes: dict[str, object],
    reason: str,
    detail: str,
) -> None:
    outcome = run(supervisor, changed(training_job(bundle, samples_db), changes))
    assert (outcome.ok, outcome.reason) == (False, reason)
    assert detail in outcome.detail
    assert outcome.update is None


@pytest.mark.parametrize("hangs", [False, True], ids=["would end at once", "does not even hear it"])
def test_a_worker_that_does_not_end_in_time_is_asked_to_and_then_killed(
    supervisor: TrainingSupervisor, bundle: Bundle, samples_db: Path, hangs: bool
) -> None:
    job = training_job(bundle, samples_db, epochs=LONG_EPOCHS, duration_s=1.0 if hangs else 0.05)
    supervisor.start(job)
    worker, pid = process_of(supervisor), wait_for_worker(os.getpid())
    if hangs:
        os.kill(pid, signal.SIGSTOP)
    outcome = wait_for_outcome(supervisor)
    assert (outcome.ok, outcome.reason) == (False, "killed-duration")
    assert worker.returncode == -(signal.SIGKILL if hangs else signal.SIGTERM)
    assert not alive(pid)


def test_a_killed_worker_is_reported_as_crashed_with_its_signal(
    supervisor: TrainingSupervisor, bundle: Bundle, samples_db: Path
) -> None:
    supervisor.start(training_job(bundle, samples_db, epochs=LONG_EPOCHS))
    os.kill(wait_for_worker(os.getpid()), signal.SIGSEGV)
    outcome = wait_for_outcome(supervisor)
    assert outcome.reason == "crashed"
    assert "SIGSEGV" in outcome.detail


def test_memory_above_the_cap_fails_the_round_and_nothing_else(
    supervisor: TrainingSupervisor, bundle: Bundle, samples_db: Path
) -> None:
    limits = {"address_space_bytes": 64 * 1024 * 1024}
    outcome = run(supervisor, training_job(bundle, samples_db, limits=limits))
    assert not outcome.ok
    assert outcome.reason in ("out-of-memory", "crashed")
    assert outcome.reason == "out-of-memory" or ALLOCATION_FAILED not in outcome.detail


def test_one_job_at_a_time(supervisor: TrainingSupervisor, bundle: Bundle, samples_db: Path) -> None:
    supervisor.start(training_job(bundle, samples_db, epochs=LONG_EPOCHS))
    assert (supervisor.busy, supervisor.command_id) == (True, "c1")
    with pytest.raises(TransientError, match="c1"):
        supervisor.start(training_job(bundle, samples_db, command_id="c2"))
    supervisor.stop()
    assert (supervisor.busy, supervisor.poll()) == (False, None)


def test_a_result_is_found_again_after_a_restart_until_it_is_discarded(
    supervisor: TrainingSupervisor, bundle: Bundle, samples_db: Path, tmp_path: Path
) -> None:
    outcome = run(supervisor, training_job(bundle, samples_db, command_id="../odd name"))
    restarted = TrainingSupervisor(tmp_path / "jobs")
    assert restarted.finished("../odd name") == outcome
    assert restarted.finished("other") is None
    restarted.sweep({"../odd name"})
    assert restarted.finished("../odd name") == outcome
    restarted.discard("../odd name")
    assert restarted.finished("../odd name") is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["jobs"]


def test_a_sweep_removes_what_is_not_kept(
    supervisor: TrainingSupervisor, bundle: Bundle, samples_db: Path, tmp_path: Path
) -> None:
    run(supervisor, evaluation_job(bundle, samples_db))
    supervisor.sweep(set())
    assert list((tmp_path / "jobs").iterdir()) == []


def test_the_worker_dies_with_its_agent(bundle: Bundle, samples_db: Path, tmp_path: Path) -> None:
    job = training_job(bundle, samples_db, epochs=LONG_EPOCHS)
    (tmp_path / "job.json").write_text(job.model_dump_json())
    agent = subprocess.Popen([sys.executable, "-c", AGENT, str(tmp_path)], stdout=subprocess.PIPE)
    assert agent.stdout is not None
    assert b"training_started" in agent.stdout.readline()
    worker = wait_for_worker(agent.pid)
    time.sleep(1.0)
    assert alive(worker)
    agent.kill()
    agent.wait(WAIT_S)
    agent.stdout.close()
    deadline_s = time.monotonic() + 30
    while alive(worker) and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert not alive(worker)


def test_the_loss_reported_is_that_of_the_base_weights(
    supervisor: TrainingSupervisor, bundle: Bundle, tmp_path: Path
) -> None:
    """Every sample in the train part, so that the set is known."""
    store_samples(tmp_path / "all.db", 60, holdout_every=1000, proof_share=0.0)
    outcome = run(supervisor, training_job(bundle, tmp_path / "all.db"))
    features, labels = tiny_samples(60)
    expected = numpy_loss(tiny_weights(), features["x"][1:], labels[1:])
    assert outcome.metrics["num-examples"] == 59
    assert outcome.metrics["clma-loss"] == pytest.approx(expected, rel=1e-5)


def changed(job: TrainingJob, changes: dict[str, object]) -> TrainingJob:
    return TrainingJob.model_validate({**job.model_dump(), **changes})


def wait_for_worker(parent: int) -> int:
    """The worker's process; its command line is empty for a moment while the kernel starts it."""
    deadline_s = time.monotonic() + WAIT_S
    while not (found := worker_pids(parent)):
        assert time.monotonic() < deadline_s, "no worker was started"
        time.sleep(0.01)
    return found[0]


def alive(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


AGENT = """
import sys, time
from pathlib import Path
from edge_agent.training.job import read_job
from edge_agent.training.supervisor import TrainingSupervisor
folder = Path(sys.argv[1])
supervisor = TrainingSupervisor(folder / "jobs")
supervisor.start(read_job((folder / "job.json").read_bytes()))
time.sleep(60)
"""
