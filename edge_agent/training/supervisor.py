"""The owner of the training worker: one child at a time, ended at its duration."""

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
    OVERLAY_FILE,
    PERSONAL_FILE,
    RESIDUAL_FILE,
    RESULT_FILE,
    STORAGE_EXIT,
    UPDATE_FILE,
    AdaptationJob,
    EvaluationJob,
    FailureReason,
    TrainingJob,
    WorkDone,
    WorkFailed,
    read_result,
)
from edge_agent.training.progress import Progress, ProgressPipe
from edge_agent.wire.codec import encode

ALLOCATION_FAILED = "memory allocation of"
"""What the libraries in Rust, JSON and safetensors, say before they end the process for lack of memory."""
TERM_WAIT_S = 2.0
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
        residual: the file with what the update's coding lost; it lies there as long.
        personal: the file with what the round made of the personal tensors, if it trained any; it lies there as long.
        overlay: the file with what following the stream made, if there is an overlay; it lies there as long.
        metrics: of the work, if it succeeded, or as far as it came.
        reason: a stable word, if it failed.
        detail: the same for people.
    """

    command_id: str
    ok: bool
    update: Path | None = None
    residual: Path | None = None
    personal: Path | None = None
    overlay: Path | None = None
    metrics: dict[str, int | float] = field(default_factory=dict)
    reason: FailureReason | None = None
    detail: str = ""


@dataclass(slots=True)
class _Running:
    """A worker under way; ``kill_s``: when it is killed that was asked to end, if it was."""

    job: TrainingJob | EvaluationJob | AdaptationJob
    process: subprocess.Popen[bytes]
    pipe: ProgressPipe
    folder: Path
    deadline_s: float
    kill_s: float | None = None


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

    def start(self, job: TrainingJob | EvaluationJob | AdaptationJob) -> None:
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
        process, pipe = _spawn(folder)
        self._running = _Running(job, process, pipe, folder, self._monotonic_s() + job.duration_s)
        _log.info("training_started", command_id=job.command_id, kind=job.kind, pid=process.pid)

    @property
    def progress(self) -> Progress | None:
        """How far the worker has said that it is; never waits."""
        return self._running.pipe.read() if self._running else None

    def poll(self) -> TrainingOutcome | None:
        """The outcome, once, when the job has ended; never waits.

        A worker that has not ended itself by its duration is asked to, and killed if it does not.
        """
        running = self._running
        if running is None:
            return None
        if running.process.poll() is None:
            self._hurry(running)
            return None
        if running.kill_s is not None:
            return self._finish(running, "killed-duration", f"after {running.job.duration_s:g} s")
        if running.process.returncode == STORAGE_EXIT:
            return self._finish(running, "storage", _log_tail(running.folder) or "the disk refused the result")
        death = _death(running)
        return self._finish(running, "out-of-memory" if ALLOCATION_FAILED in death else "crashed", death)

    def _hurry(self, running: _Running) -> None:
        now_s = self._monotonic_s()
        if running.kill_s is None and now_s >= running.deadline_s:
            running.process.terminate()
            running.kill_s = now_s + TERM_WAIT_S
        elif running.kill_s is not None and now_s >= running.kill_s:
            running.process.kill()
            running.kill_s = now_s + KILL_WAIT_S

    def stop(self) -> None:
        """Kill the worker, if any; its job has no outcome."""
        running, self._running = self._running, None
        if running is not None:
            _end(running.process)
            running.pipe.close()
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
        running.pipe.close()
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
    metrics = dict(result.metrics)
    if isinstance(result, WorkFailed):
        return TrainingOutcome(command_id, ok=False, metrics=metrics, reason=result.reason, detail=result.detail)
    made = (folder / name for name in (UPDATE_FILE, RESIDUAL_FILE, PERSONAL_FILE, OVERLAY_FILE))
    update, residual, personal, overlay = (path if path.exists() else None for path in made)
    return TrainingOutcome(command_id, True, update, residual, personal, overlay, metrics)


def _spawn(folder: Path) -> tuple[subprocess.Popen[bytes], ProgressPipe]:
    """The worker, and the pipe that its progress comes through."""
    command = [sys.executable, "-I", "-m", "edge_agent.training.worker", str(folder / JOB_FILE), str(os.getpid())]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    try:
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise TransientError(f"the training worker does not start: {error.strerror}") from None
    try:
        with (folder / LOG_FILE).open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=writer,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
    except OSError as error:
        os.close(reader)
        raise TransientError(f"the training worker does not start: {error.strerror}") from None
    finally:
        os.close(writer)
    return process, ProgressPipe(reader)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask, then kill; waits for a few seconds at most."""
    for signalled, wait_s in ((process.terminate, TERM_WAIT_S), (process.kill, KILL_WAIT_S)):
        signalled()
        try:
            process.wait(timeout=wait_s)
        except subprocess.TimeoutExpired:
            continue
        return
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
