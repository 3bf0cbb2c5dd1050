"""A round with the real worker process, and a look at what processes there are."""

import subprocess
import time
from contextlib import suppress
from pathlib import Path

from edge_agent.training.job import EvaluationJob, TrainingJob
from edge_agent.training.supervisor import TrainingOutcome, TrainingSupervisor

WAIT_S = 150.0
LONG_EPOCHS = 1_000_000_000


def wait_for_outcome(supervisor: TrainingSupervisor) -> TrainingOutcome:
    deadline_s = time.monotonic() + WAIT_S
    while time.monotonic() < deadline_s:
        outcome = supervisor.poll()
        if outcome is not None:
            return outcome
        time.sleep(0.02)
    raise AssertionError("the worker did not end")


def run(supervisor: TrainingSupervisor, job: TrainingJob | EvaluationJob) -> TrainingOutcome:
    supervisor.start(job)
    return wait_for_outcome(supervisor)


def process_of(supervisor: TrainingSupervisor) -> "subprocess.Popen[bytes]":
    """The worker under way; how it ended can be asked of it afterwards."""
    assert supervisor._running is not None
    return supervisor._running.process


def worker_pids(parent: int) -> list[int]:
    """Training workers among the children; other tests may have left children of their own, which end meanwhile."""
    found = []
    for task in Path(f"/proc/{parent}/task").iterdir():
        with suppress(OSError):
            found += [int(pid) for pid in (task / "children").read_text().split()]
    return [pid for pid in found if b"edge_agent.training.worker" in _command(pid)]


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
