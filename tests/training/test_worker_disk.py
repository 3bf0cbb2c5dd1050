"""The real worker, a whole round: the disk full at each single step of it, and a wall clock that jumps."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from edge_agent.model.bundle import Bundle
from edge_agent.training.job import (
    JOB_FILE,
    PERSONAL_FILE,
    RESIDUAL_FILE,
    RESULT_FILE,
    STORAGE_EXIT,
    UPDATE_FILE,
    Lineage,
    WorkDone,
    WorkFailed,
    read_result,
)
from edge_agent.wire.codec import encode
from tests.training.jobs import training_job
from tests.training.personal_bundle import personal_bundle
from tests.training.test_worker_faults import LINE

MADE = (UPDATE_FILE, PERSONAL_FILE, RESIDUAL_FILE)
RUN_S = 60


@dataclass(frozen=True)
class Ended:
    """How a worker ended, and what it left: files by name without the job's, and the result."""

    status: int
    steps: int
    files: dict[str, bytes]

    @property
    def result(self) -> WorkDone | WorkFailed | None:
        return read_result(self.files[RESULT_FILE]) if RESULT_FILE in self.files else None

    @property
    def made(self) -> dict[str, bytes]:
        return {name: self.files[name] for name in MADE if name in self.files}


@pytest.fixture(scope="module")
def personal(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """So that a round writes all that it can: update, personal values, residual, result."""
    return personal_bundle(tmp_path_factory.mktemp("personal") / "bundle")


@pytest.fixture
def worker(personal: Bundle, samples_db: Path, tmp_path: Path) -> Callable[[str], Ended]:
    def work(fault: str) -> Ended:
        """In the folder of the runs before, as after a restart of the agent that took nothing of them."""
        line = Lineage.model_validate({**LINE.model_dump(), "bundle": personal.digest})
        job = training_job(personal, samples_db, coding="int8", lineage=line)
        for name in (*MADE, RESULT_FILE):
            (tmp_path / name).unlink(missing_ok=True)
        (tmp_path / JOB_FILE).write_bytes(encode(job))
        command = [sys.executable, "-m", "tests.training.faulty_worker", fault, str(tmp_path / JOB_FILE)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=RUN_S, check=False)
        left = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.name != JOB_FILE}
        return Ended(ended.returncode, int(ended.stderr.rpartition("steps ")[2]), left)

    return work


@pytest.mark.long
def test_the_disk_may_be_full_at_every_step_of_a_round(worker: Callable[[str], Ended]) -> None:
    whole = worker("full-0")
    assert isinstance(whole.result, WorkDone)
    assert set(whole.files) == {*MADE, RESULT_FILE}
    for k in range(1, whole.steps + 1):
        full = worker(f"full-{k}")
        assert full.status == STORAGE_EXIT, k
        assert set(full.files) <= {*MADE, RESULT_FILE}, f"{k}: something half written is left"
        assert all(whole.made[name] == data for name, data in full.made.items()), k
        if full.result is not None:  # the result's own last step: it is in place, and so is all that it tells of
            assert isinstance(full.result, WorkDone)
            assert full.made == whole.made
    once = worker("full-2-once")
    assert once.status == 0
    assert isinstance(once.result, WorkFailed)
    assert once.result.reason == "storage"
    assert UPDATE_FILE in once.result.detail
    assert worker("full-0").made == whole.made


@pytest.mark.long
def test_a_wall_clock_that_jumps_by_years_changes_nothing(worker: Callable[[str], Ended]) -> None:
    usual, jumping = worker("full-0"), worker("clock")
    assert jumping.status == 0
    assert jumping.made == usual.made
    told = []
    for result in (jumping.result, usual.result):
        assert isinstance(result, WorkDone)
        metrics = dict(result.metrics)
        assert 0 < metrics.pop("train-duration-s") < RUN_S
        told.append(metrics)
    assert told[0] == told[1]
