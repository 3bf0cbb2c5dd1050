"""The owner of the training worker: one child at a time, killed at its duration."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import structlog

from edge_agent.errors import DataError, StorageError, TransientError
from edge_agent.link.durable import make_directory, read_file, remove_directory, write_file
from edge_agent.training.job import (
    JOB_FILE,
    LOG_FILE,
    RESULT_FILE,
    UPDATE_FILE,
    EvaluationJob,
    FailureReason,
    TrainingJob,
    WorkDone,
    WorkFailed,
    read_result,
)
from edge_agent.wire.codec import encode

KILL_WAIT_S = 5.0
LOG_TAIL_BYTES = 1000
RESULT_CAP_BYTES = 1024 * 1024

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """How a job ended.

    Attributes:
        update: the encoded update's file, for a training that succeeded; it lies there until
            ``discard``.
        metrics: of the work, if it succeeded.
        reason: a stable word, if it failed.
        detail: the same for people.
    """

    command_id: str
    ok: bool
    update: Path | None = None
    metrics: dict[str, int | float] = field(default_factory=dict)
    reason: FailureReason | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class _Running:
    job: TrainingJob | EvaluationJob
    process: subprocess.Popen[bytes]
    folder: Path
    deadline_s: float


class TrainingSupervisor:
    """Starts a worker, watches it, and says how it ended.

    Call it from one thread that lives as long as the agent: the kernel kills the worker when the
    thread that started it ends.

    Args:
        folder: for the jobs' files; a folder a job.
        monotonic_s: the clock that durations are measured by.
    """

    def __init__(self, folder: Path, *, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._monotonic_s = monotonic_s
        self._running: _Running | None = None

    @property
    def busy(self) -> bool:
        """Whether a job has been started and its outcome not yet been taken by ``poll``."""
        return self._running is not None

    @property
    def command_id(self) -> str | None:
        """The command that is being worked on."""
        return self._running.job.command_id if self._running else None

    def start(self, job: TrainingJob | EvaluationJob) -> None:
        """Begin a job; what an earlier try of the same command left is removed.

        Raises:
            TransientError: another job is running, or no process can be started now.
            StorageError: its files cannot be written.
        """
        if self._running is not None:
            raise TransientError(f"the worker is busy with command {self._running.job.command_id}")
        self.discard(job.command_id)
        folder = self._job_folder(job.command_id)
        make_directory(folder)
        write_file(folder / JOB_FILE, encode(job))
        process = _spawn(folder)
        self._running = _Running(job, process, folder, self._monotonic_s() + job.duration_s)
        _log.info("training_started", command_id=job.command_id, kind=job.kind, pid=process.pid)

    def poll(self) -> TrainingOutcome | None:
        """The outcome, once, when the job has ended; the worker is killed at its duration."""
        running = self._running
        if running is None:
            return None
        if running.process.poll() is None:
            if self._monotonic_s() < running.deadline_s:
                return None
            _end(running.process)
            return self._finish(running, "killed-duration", f"after {running.job.duration_s:g} s")
        return self._finish(running, "crashed", _death(running))

    def stop(self) -> None:
        """Kill the worker, if any; its job has no outcome."""
        running, self._running = self._running, None
        if running is not None:
            _end(running.process)
            _log.info("training_stopped", command_id=running.job.command_id)

    def finished(self, command_id: str) -> TrainingOutcome | None:
        """The outcome of an earlier job whose result is still on disk, also from before a restart.

        Raises:
            StorageError: the result cannot be read.
            DataError: it is damaged.
        """
        folder = self._job_folder(command_id)
        path = folder / RESULT_FILE
        if not path.exists():
            return None
        return _outcome(command_id, read_result(read_file(path, cap_bytes=RESULT_CAP_BYTES)), folder)

    def discard(self, command_id: str) -> None:
        """Forget a job's files.

        Raises:
            StorageError: they cannot be removed.
        """
        remove_directory(self._job_folder(command_id))

    def sweep(self, keep: set[str]) -> None:
        """Remove the files of all jobs but those of the given commands.

        Raises:
            StorageError: they cannot be removed.
        """
        kept = {self._job_folder(command_id).name for command_id in keep}
        if self._running is not None:
            kept.add(self._running.folder.name)
        for folder in self._folder.iterdir() if self._folder.is_dir() else ():
            if folder.name not in kept:
                remove_directory(folder)

    def _finish(self, running: _Running, reason: FailureReason, detail: str) -> TrainingOutcome:
        """A result that was written counts, however the process ended after it."""
        self._running = None
        command_id = running.job.command_id
        try:
            outcome = self.finished(command_id)
        except (DataError, StorageError) as error:
            reason, detail, outcome = "crashed", str(error), None
        if outcome is None:
            outcome = TrainingOutcome(command_id, ok=False, reason=reason, detail=detail)
        _log.info("training_ended", command_id=command_id, ok=outcome.ok, reason=outcome.reason)
        return outcome

    def _job_folder(self, command_id: str) -> Path:
        return self._folder / sha256(command_id.encode()).hexdigest()[:32]


def _outcome(command_id: str, result: WorkDone | WorkFailed, folder: Path) -> TrainingOutcome:
    if isinstance(result, WorkFailed):
        return TrainingOutcome(command_id, ok=False, reason=result.reason, detail=result.detail)
    update = folder / UPDATE_FILE
    return TrainingOutcome(command_id, True, update if update.exists() else None, dict(result.metrics))


def _spawn(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-m", "edge_agent.training.worker", str(folder / JOB_FILE), str(os.getpid())]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    try:
        with (folder / LOG_FILE).open("wb") as log:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
    except OSError as error:
        raise TransientError(f"the training worker does not start: {error.strerror}") from None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    try:
        process.wait(timeout=KILL_WAIT_S)
    except subprocess.TimeoutExpired:
        _log.error("worker_unkillable", pid=process.pid)


def _death(running: _Running) -> str:
    code = running.process.returncode
    how = f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit status {code}"
    return f"{how}; {_log_tail(running.folder)}"


def _log_tail(folder: Path) -> str:
    try:
        return (folder / LOG_FILE).read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip()
    except OSError as error:
        return f"no log ({error.strerror})"
