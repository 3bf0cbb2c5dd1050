"""Train and evaluate orders: fetch the weights, run the worker, hand on what it made."""

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import structlog

from edge_agent.errors import DataError, TransientError
from edge_agent.link.blob_store import BlobStore
from edge_agent.link.download import BlobUnavailable, Downloader
from edge_agent.link.durable import read_file
from edge_agent.link.outbox import Outbox, Priority
from edge_agent.link.upload import Uploader
from edge_agent.runtime.model_in_service import Serving
from edge_agent.runtime.orders import OrderFailed
from edge_agent.runtime.personal_rounds import PersonalRounds
from edge_agent.runtime.training_orders import OperatorLimits, training_job
from edge_agent.runtime.training_reports import TrainingReports
from edge_agent.training.evaluation import CANDIDATE_KEY
from edge_agent.training.job import EvaluationJob, Job, TrainingJob
from edge_agent.training.residual import Residuals
from edge_agent.training.supervisor import TrainingOutcome, TrainingSupervisor
from edge_agent.wire.blobs import BlobReference, make_chunk_list, sha256_hex
from edge_agent.wire.messages import (
    BlobMissingEvent,
    Command,
    Evaluate,
    EvaluateResult,
    Train,
    TrainResult,
    UpdateManifest,
)

POLL_S = 0.05
EVALUATED_KEPT = 4
FETCH_TRY_S = 60.0
HOUR_S = 3600.0
_log = structlog.get_logger(__name__)

__all__ = ["LocalWork", "OperatorLimits", "Serving"]


class LocalWork:
    """Carries out the long orders on the orders thread.

    Args:
        blobs: where the downloader puts base weights; those of earlier orders are removed, but for
            the last few that were evaluated: a gateway may train from one of them next.
        serving: what serves now.
        samples_db: the sample store's file, which the worker reads by itself.
        held: weights that the gateway has anyway, such as those that serve; they need no download.
        residuals: what the codings of updates lost, for the next round; None: it is not kept.
        personal: this gateway's values of personal tensors; None: rounds begin with the bundle's own and keep none.
        embeddings_file: where rounds of a head keep their samples' embeddings; None: nowhere.
    """

    def __init__(
        self,
        supervisor: TrainingSupervisor,
        downloader: Downloader,
        blobs: BlobStore,
        uploader: Uploader,
        outbox: Outbox,
        *,
        limits: OperatorLimits,
        serving: Callable[[], Serving],
        samples_db: Path,
        held: Callable[[str], bytes | None] = lambda _: None,
        residuals: Residuals | None = None,
        personal: PersonalRounds | None = None,
        embeddings_file: Path | None = None,
    ) -> None:
        self._supervisor = supervisor
        self._downloader = downloader
        self._blobs = blobs
        self._uploader = uploader
        self._outbox = outbox
        self._limits = limits
        self._serving = serving
        self._samples_db = samples_db
        self._held = held
        self._residuals = residuals
        self._personal = personal
        self._embeddings_file = embeddings_file
        self._reports = TrainingReports(outbox)
        self._evaluated: deque[str] = deque(maxlen=EVALUATED_KEPT)
        self._enabled = limits.enabled
        self._recent: deque[float] = deque()
        self._lock = threading.Lock()

    def set_enabled(self, enabled: bool) -> None:
        """The bridge may switch training off and on; it cannot switch on what the operator switched off."""
        with self._lock:
            self._enabled = enabled and self._limits.enabled

    def train(self, command: Command, action: Train, ended: Callable[[], bool], deadline_s: float) -> TrainResult:
        """One local round; the update is held by the uploader until the bridge has it.

        Raises:
            OrderFailed: refused by a limit, or the round came to nothing (with the reason).
            StorageError: the disk refused.
        """
        self._admit()
        serving = self._fitting(action.bundle)
        self._evaluated.clear()
        weights_file = self._fetch(action.base, ended, deadline_s)
        self._admit_round()
        common = self._job(command, serving, weights_file, action.base, action.max_samples, deadline_s)
        job = self._with_residual(training_job(common, action, self._limits, from_sample=serving.training_from))
        personal_file = None if self._personal is None else self._personal.file_for_training(action)
        job = job.model_copy(update={"personal_file": personal_file, "embeddings_file": self._embeddings_file})
        outcome = self._run(job, ended)
        if self._serving().bundle != action.bundle:
            raise OrderFailed("bundle-changed", "another bundle was activated meanwhile")
        return self._hand_on(command, action, job, outcome)

    def evaluate(
        self, command: Command, action: Evaluate, ended: Callable[[], bool], deadline_s: float
    ) -> EvaluateResult:
        """Counts, loss and accuracy of the named weights; samples never leave.

        A candidate for a gateway that drifted is evaluated on the samples since its drift.

        Raises:
            OrderFailed: as :meth:`train`.
        """
        serving = self._fitting(action.bundle)
        self._evaluated.append(action.weights.digest)
        weights_file = self._fetch(action.weights, ended, deadline_s)
        drifted_from = serving.training_from if action.config.get(CANDIDATE_KEY, False) else None
        job = EvaluationJob(
            **dict(self._job(command, serving, weights_file, action.weights, action.max_samples, deadline_s)),
            since_sample=action.since_sample or drifted_from,
        )
        if self._personal is not None:
            job = job.model_copy(update={"personal_file": self._personal.file_for_evaluation()})
        outcome = self._run(job, ended)
        return EvaluateResult(weights=action.weights.digest, metrics=dict(outcome.metrics))

    def _job(
        self,
        command: Command,
        serving: Serving,
        weights_file: Path,
        weights: BlobReference,
        max_samples: int,
        deadline_s: float,
    ) -> Job:
        """What both kinds of work need."""
        return Job(
            command_id=command.command_id,
            duration_s=self._remaining(deadline_s),
            limits=self._limits.worker,
            bundle_dir=serving.bundle_dir,
            bundle=serving.bundle,
            weights_file=weights_file,
            weights=weights.digest,
            samples_db=self._samples_db,
            max_samples=max_samples,
        )

    def _admit(self) -> None:
        with self._lock:
            if not self._enabled:
                raise OrderFailed("training-disabled", "switched off by the operator or the bridge")
            now = time.monotonic()
            while self._recent and self._recent[0] < now - HOUR_S:
                self._recent.popleft()
            if len(self._recent) >= self._limits.max_rounds_per_hour:
                raise OrderFailed("rate-limit", f"{self._limits.max_rounds_per_hour} rounds in the last hour")

    def _admit_round(self) -> None:
        with self._lock:
            self._recent.append(time.monotonic())

    def _fitting(self, bundle: str) -> Serving:
        serving = self._serving()
        if serving.bundle != bundle:
            raise OrderFailed("other-bundle", f"bundle {serving.bundle[:12]} serves here, not {bundle[:12]}")
        return serving

    def _remaining(self, deadline_s: float) -> float:
        remaining = min(deadline_s - time.monotonic(), self._limits.max_duration_s)
        if remaining <= 0:
            raise OrderFailed("too-late", "the order's duration is over")
        return remaining

    def _fetch(self, reference: BlobReference, ended: Callable[[], bool], deadline_s: float) -> Path:
        if self._blobs.sound(reference.digest) is None and (data := self._held(reference.digest)) is not None:
            self._blobs.put(data)
        while True:
            if ended():
                raise OrderFailed("superseded", "a newer order came")
            timeout_s = min(self._remaining(deadline_s), FETCH_TRY_S)
            try:
                path = self._downloader.fetch(reference, timeout_s=timeout_s, cancelled=ended)
            except BlobUnavailable as error:
                _log.info("weights_absent", digest=reference.digest, reason=error.reason)
                if error.reason == "too-large":
                    raise OrderFailed("too-large", str(error)) from None
                if error.reason in ("silent", "withdrawn"):
                    self._outbox.put(BlobMissingEvent(blob=reference), Priority.LIFECYCLE)
                time.sleep(min(1.0, self._remaining(deadline_s)))
            else:
                self._forget_all_but(reference)
                return path

    def _forget_all_but(self, reference: BlobReference) -> None:
        """The bridge has what earlier orders were about; what was evaluated may be trained from next."""
        for digest in self._blobs.digests():
            if digest != reference.digest and digest not in self._evaluated:
                self._blobs.remove(digest)

    def _with_residual(self, job: TrainingJob) -> TrainingJob:
        """The round knows where the coding error of the one before lies."""
        if job.lineage is None or self._residuals is None:
            return job.model_copy(update={"lineage": None})
        return job.model_copy(update={"residual_file": self._residuals.path(job.lineage)})

    def _run(self, job: TrainingJob | EvaluationJob, ended: Callable[[], bool]) -> TrainingOutcome:
        try:
            self._supervisor.sweep({job.command_id})
            outcome = self._held_result(job.command_id) or self._work(job, ended)
        except (TransientError, DataError) as error:
            raise OrderFailed("not-started", str(error)) from None
        if isinstance(job, TrainingJob):
            self._reports.ended(job, outcome)
        if not outcome.ok:
            self._supervisor.discard(job.command_id)
            raise OrderFailed(outcome.reason or "crashed", outcome.detail, outcome.metrics)
        return outcome

    def _work(self, job: TrainingJob | EvaluationJob, ended: Callable[[], bool]) -> TrainingOutcome:
        """Until the worker has ended, whichever way; it is only looked at, never waited for."""
        self._supervisor.start(job)
        self._reports.began(job.duration_s)
        while (outcome := self._supervisor.poll()) is None:
            if ended():
                self._supervisor.stop()
                raise OrderFailed("superseded", "a newer order came")
            if isinstance(job, TrainingJob):
                self._reports.progress(job, self._supervisor.progress)
            time.sleep(POLL_S)
        return outcome

    def _held_result(self, command_id: str) -> TrainingOutcome | None:
        """A result from before a restart; one that the disk damaged is worked out again."""
        try:
            return self._supervisor.finished(command_id)
        except DataError as error:
            _log.error("result-damaged", command_id=command_id, problem=error.problem)
            return None

    def forget(self, command_id: str) -> None:
        """The reply to an order is stored: what it was made from may go.

        Raises:
            StorageError: the disk refused; the next order removes it.
        """
        self._supervisor.discard(command_id)

    def _keep_personal(self, action: Train, outcome: TrainingOutcome) -> None:
        """Before the update is offered: an update that counts without the values it was trained with would not fit."""
        if outcome.personal is None or self._personal is None:
            return
        try:
            self._personal.keep(action, outcome.personal)
        except DataError as error:
            raise OrderFailed("bad-personal", str(error)) from None

    def _hand_on(self, command: Command, action: Train, job: TrainingJob, outcome: TrainingOutcome) -> TrainResult:
        if outcome.update is None:
            raise OrderFailed("crashed", "the worker left no update")
        data = read_file(outcome.update)
        self._keep_personal(action, outcome)
        if outcome.residual is not None and job.lineage is not None and self._residuals is not None:
            self._residuals.take(outcome.residual, job.lineage)
        chunk_list = make_chunk_list(data)
        self._uploader.offer(command.command_id, data, chunk_list)
        manifest = UpdateManifest(
            coding=action.coding, base=action.base.digest, digest=sha256_hex(data), chunks=chunk_list
        )
        return TrainResult(round=action.round, cohort=action.cohort, update=manifest, metrics=dict(outcome.metrics))
