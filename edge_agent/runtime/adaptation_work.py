"""What the thread that follows the stream asks of its worker, and the files between the two."""

from dataclasses import replace
from pathlib import Path
from typing import Protocol

import structlog

from edge_agent.config import AdaptationSection
from edge_agent.errors import DataError, StorageError
from edge_agent.link.durable import (
    make_directory,
    put_in_place,
    read_file,
    remove_directory,
    remove_file,
    write_file,
)
from edge_agent.ota.weights_store import Loaded
from edge_agent.training.held_out import LEAST_SAMPLES
from edge_agent.training.job import AdaptationJob, WorkerLimits
from edge_agent.training.overlay_file import SavedOverlay, decode_overlay
from edge_agent.training.supervisor import TrainingOutcome
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.tensors import encode_weights

_log = structlog.get_logger(__name__)
JOB_ID = "between-rounds"
FOLLOWED_FILE, RELEASE_FILE = "followed.bin", "release.safetensors"


class Worker(Protocol):
    """A :class:`edge_agent.training.supervisor.TrainingSupervisor`, as far as it is used here."""

    @property
    def busy(self) -> bool:
        """Whether a job has been started and its outcome not yet been taken."""
        ...

    def start(self, job: AdaptationJob) -> None:
        """Begin."""
        ...

    def poll(self) -> TrainingOutcome | None:
        """The outcome, once."""
        ...

    def stop(self) -> None:
        """End it without an outcome."""
        ...

    def discard(self, command_id: str) -> None:
        """Forget a job's files."""
        ...

    def sweep(self, keep: set[str]) -> None:
        """Forget the files of all other jobs."""
        ...


class AdaptationWork:
    """The worker, and what it left the last time. For one thread.

    Args:
        folder: for the files.
        worker: works in a folder on the same file system.

    Attributes:
        followed: what the stream has led to on this release, without the weights, which lie in the file; None: nothing
            yet.
    """

    def __init__(
        self, section: AdaptationSection, folder: Path, samples_db: Path, worker: Worker, limits: WorkerLimits
    ) -> None:
        self._section, self._folder, self._samples_db = section, folder, samples_db
        self._worker, self._limits = worker, limits
        self._written: str | None = None
        self._swept = False
        self.followed: SavedOverlay | None = None

    @property
    def busy(self) -> bool:
        """Whether the worker works."""
        return self._worker.busy

    def sweep(self) -> None:
        """At the start: what an earlier one followed is forgotten.

        Raises:
            StorageError: the disk refuses; the next call tries again.
        """
        if self._swept:
            return
        self._worker.sweep(set())
        for name in (FOLLOWED_FILE, RELEASE_FILE):
            remove_file(self._place(name))
        self._swept = True

    def forget(self) -> None:
        """End the work, and begin anew from the release the next time."""
        self._worker.stop()
        self.followed, self._written = None, None

    def stop(self) -> None:
        """End the work without an outcome; what was followed before stays."""
        self._worker.stop()

    def is_whole(self) -> bool:
        """Whether the file of what was followed is what was written."""
        if self.followed is None:
            return True
        try:
            return _named(decode_overlay(read_file(self._folder / FOLLOWED_FILE))) == self.followed
        except (DataError, StorageError):
            return False

    def start(self, release: Loaded) -> None:
        """Follow what came since.

        Args:
            release: that serves, with this gateway's own values of personal tensors.

        Raises:
            StorageError, TransientError: the disk or the system refuses.
        """
        payload = encode_weights(release.weights)
        digest = sha256_hex(payload)
        if digest != self._written:
            make_directory(self._folder)
            write_file(self._place(RELEASE_FILE), payload)
            self._written = digest
        self._worker.start(self._job(release, digest))

    def poll(self) -> TrainingOutcome | None:
        """How the work ended, once; one that failed has its release's file written anew the next time."""
        outcome = self._worker.poll()
        if outcome is not None and not outcome.ok:
            self._written = None
        return outcome

    def keep(self, made: Path) -> SavedOverlay:
        """Take what the worker made, for serving and for the next time.

        Raises:
            DataError: it is damaged.
            StorageError: the disk refuses.
        """
        put_in_place(made, self._place(FOLLOWED_FILE))
        made_now = decode_overlay(read_file(self._folder / FOLLOWED_FILE))
        self.followed = _named(made_now)
        return made_now

    def done(self) -> None:
        """The outcome was looked at.

        Raises:
            StorageError: the disk refuses.
        """
        self._worker.discard(JOB_ID)

    def _place(self, name: str) -> Path:
        """Where a file goes; a folder that came to lie there, with all in it, is in the way and goes.

        Raises:
            StorageError: the disk refuses.
        """
        path = self._folder / name
        if path.is_dir() and not path.is_symlink():
            _log.warning("folder_in_the_place_of_a_file_removed", path=str(path))
            remove_directory(path)
        return path

    def _job(self, release: Loaded, digest: str) -> AdaptationJob:
        section = self._section
        return AdaptationJob(
            command_id=JOB_ID,
            duration_s=section.max_duration_s,
            limits=self._limits,
            bundle_dir=release.bundle.path,
            bundle=release.bundle.digest,
            weights_file=self._folder / RELEASE_FILE,
            weights=digest,
            samples_db=self._samples_db,
            max_samples=section.max_samples,
            training_graph=section.graph,
            minimum=section.eta_min,
            maximum=section.eta_max,
            steps=section.steps,
            label_shift=section.label_shift,
            farthest=section.farthest,
            batch_size=section.batch_size,
            overlay_file=None if self.followed is None else self._folder / FOLLOWED_FILE,
        )


def _named(overlay: SavedOverlay) -> SavedOverlay:
    """What is kept in memory of it."""
    return replace(overlay, saved=b"")


def has_judged(outcome: TrainingOutcome) -> bool:
    """Whether labels that had not judged before have found what is followed no worse."""
    told = outcome.metrics
    enough = told.get("proof-examples", 0) >= LEAST_SAMPLES and told.get("judged-anew", 0) > 0
    return bool(enough) and not told.get("made-worse")


def judgement(outcome: TrainingOutcome) -> str:
    """The judgement in words; "": nothing was judged."""
    told = outcome.metrics
    if not told.get("proof-examples"):
        return ""
    words = f"on {told['proof-examples']:.0f} samples"
    for name in ("accuracy", "loss"):
        before, after = told.get(f"proof-{name}-before"), told.get(f"proof-{name}-after")
        if before is not None and after is not None:
            words += f", {name} {before:.4g} (release) and {after:.4g} (overlay)"
    if "class-lost" in told:
        words += f"; class {told['class-lost']:.0f} is lost, as all looks together show"
    return words
