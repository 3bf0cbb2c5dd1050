"""A round with the real worker process, and a look at what processes there are."""

import time
from pathlib import Path

from edge_agent.training.job import EvaluationJob, TrainingJob
from edge_agent.training.supervisor import TrainingOutcome, TrainingSupervisor

WAIT_S = 30.0
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


def worker_pids(parent: int) -> list[int]:
    """Training workers among the children; other tests may have left children of their own."""
    found = []
    for task in Path(f"/proc/{parent}/task").iterdir():
        found += [int(pid) for pid in (task / "children").read_text().split()]
    return [pid for pid in found if b"edge_agent.training.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]
