"""The worker process: ``python -m edge_agent.training.worker JOB.json [PARENT_PID]``.

It reads the job, confines itself, works, and writes its result beside the job; the exit status
is 0 whenever a result was written, and 74 if the disk refused it. Progress goes to standard output,
a line of JSON a second.
"""

import os
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from edge_agent.errors import DataError, EdgeError, StorageError, WireError
from edge_agent.link.durable import read_file, write_file
from edge_agent.model.bundle import Bundle, load_bundle
from edge_agent.samples.reading import read_evaluation_set, read_feature_set, read_training_set
from edge_agent.samples.record import FeatureSet, SampleSet
from edge_agent.samples.selection import Mixture
from edge_agent.training.confinement import age_s, confine, die_with_parent, is_at_its_cap
from edge_agent.training.embedding_cache import EmbeddingCache
from edge_agent.training.head_training import Embedder, is_of_head
from edge_agent.training.job import (
    OVERLAY_FILE,
    PERSONAL_FILE,
    RESIDUAL_FILE,
    RESULT_FILE,
    STORAGE_EXIT,
    UPDATE_FILE,
    AdaptationJob,
    EvaluationJob,
    FailureReason,
    Job,
    TrainingJob,
    WorkDone,
    WorkFailed,
    read_job,
)
from edge_agent.training.label_free_round import is_label_free, run_label_free_round
from edge_agent.training.local_round import Data, LocalRound, run_local_round
from edge_agent.training.personal import with_personal
from edge_agent.training.progress import Timekeeper, tell_over
from edge_agent.training.residual import encode_residual, read_residual
from edge_agent.training.tasks import evaluate_tasks, of_its_task
from edge_agent.training.usable import of_this_bundle
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.codec import encode
from edge_agent.wire.scalars import unfit_rate, unfit_scalar
from edge_agent.wire.tensors import Weights, check_weights, decode_weights, encode_weights
from edge_agent.wire.updates import code_update

DETAIL_CHARS = 1000
PROOF_SAMPLES = 2000
ALLOCATION_FAILURES = ("Failed to allocate memory", "bad_alloc", "bad allocation")
JOB_CAP_BYTES = 1024 * 1024
Samples = TypeVar("Samples", SampleSet, FeatureSet)


def main(arguments: list[str]) -> int:
    """Do the job named on the command line."""
    job_path = Path(arguments[0])
    if len(arguments) > 1:
        die_with_parent(int(arguments[1]))
    result = carry_out(job_path)
    try:
        write_file(job_path.parent / RESULT_FILE, encode(result))
    except StorageError as error:
        _say(str(error))
        return STORAGE_EXIT
    return 0


def carry_out(job_path: Path) -> WorkDone | WorkFailed:
    """Read a job, confine this process as it says, and work; an update is written beside it."""
    started_s = time.monotonic() - age_s()
    try:
        job = read_job(read_file(job_path, cap_bytes=JOB_CAP_BYTES))
        confine(job.limits)
        bundle, weights = _load(job)
        if isinstance(job, TrainingJob):
            return _train(job, bundle, weights, job_path.parent, started_s)
        if isinstance(job, AdaptationJob):
            return _adapt(job, bundle, weights, job_path.parent)
        return _evaluate(job, bundle, weights)
    except MemoryError:
        return WorkFailed(reason="out-of-memory", detail="the cap on address space was reached")
    except StorageError as error:
        return failure(error, "storage")
    except (EdgeError, WireError) as error:
        return failure(error, "bad-job")


def _say(text: str) -> None:
    """A line for the log; on a full disk it is lost, and nothing is left for Python to fail on at the exit."""
    with suppress(OSError):
        os.write(2, text.encode() + b"\n")


def failure(error: Exception, reason: FailureReason) -> WorkFailed:
    """A failure, told from one that the memory cap caused: onnxruntime says so only in words."""
    text = str(error)
    if is_at_its_cap() or any(words in text for words in ALLOCATION_FAILURES):
        reason = "out-of-memory"
    return WorkFailed(reason=reason, detail=text[:DETAIL_CHARS])


def _load(job: Job) -> tuple[Bundle, Weights]:
    bundle = load_bundle(job.bundle_dir, digest=job.bundle)
    payload = read_file(job.weights_file)
    if sha256_hex(payload) != job.weights:
        raise DataError(f"weights file {job.weights_file.name}: digest differs from {job.weights}")
    weights = decode_weights(payload)
    check_weights(weights, bundle.manifest.trainable)
    return bundle, with_personal(bundle, weights, job.personal_file)


def _train(job: TrainingJob, bundle: Bundle, base: Weights, folder: Path, started_s: float) -> WorkDone | WorkFailed:
    job = of_its_task(job, bundle)
    _refuse_unfit_rates(job, bundle)
    proof = _proof(job, bundle)
    metrics: dict[str, int | float] = {}
    watch = Timekeeper(
        job.epochs,
        job.duration_s,
        started_s=started_s,
        share=0.5 if job.split_half else 1.0,
        tell=lambda progress: tell_over(sys.stdout.fileno(), progress),
    )
    try:
        of_head = is_of_head(bundle, job.training_graph)
        if is_label_free(bundle, job.training_graph):
            seen = _unlabelled(job, bundle)
            if of_head:
                seen, proof, metrics["embeddings-computed"] = _embedded(job, bundle, base, seen, proof)
            judged = Data(proof.features, proof.labels)
            outcome = run_label_free_round(bundle, base, seen.features, job, held_out=judged, watch=watch)
        else:
            samples = _samples(job, bundle)
            if of_head:
                samples, proof, metrics["embeddings-computed"] = _embedded(job, bundle, base, samples, proof)
            outcome = run_local_round(
                bundle,
                base,
                samples.features,
                samples.labels,
                job,
                held_out=Data(proof.features, proof.labels),
                rehearsed=samples.rehearsed,
                watch=watch,
            )
    except DataError as error:
        return failure(error, "bad-samples")
    if isinstance(outcome, WorkFailed):
        return outcome
    return _write_update(job, replace(outcome, metrics=outcome.metrics | metrics), folder)


def _refuse_unfit_rates(job: TrainingJob, bundle: Bundle) -> None:
    """Before samples are read: it is the order that is wrong, not they."""
    unfit = unfit_rate(job.learning_rate) or unfit_scalar(bundle.training_graph(job.training_graph), job.scalars)
    if unfit:
        raise DataError(unfit)
    if job.schedule == "fed-ade" and job.learning_rate_min > job.learning_rate:
        raise DataError(
            f"fed-ade: rates from {job.learning_rate_min:g} to {job.learning_rate:g}",
            "give a minimum up to the maximum",
        )


def _samples(job: TrainingJob, bundle: Bundle) -> SampleSet:
    """What to train on."""
    samples = read_training_set(
        job.samples_db,
        bundle.manifest.inputs,
        from_sample=job.from_sample,
        limit=job.max_samples,
        task=job.task,
        mixture=_mixture(job),
    )
    return of_this_bundle(samples, bundle.manifest)


def _mixture(job: TrainingJob) -> Mixture:
    return Mixture(job.rehearsal_share, job.balanced, job.seed)


def _unlabelled(job: TrainingJob, bundle: Bundle) -> FeatureSet:
    """What to train on without labels, with or without one."""
    return read_feature_set(
        job.samples_db, bundle.manifest.inputs, from_sample=job.from_sample, limit=job.max_samples, task=job.task
    )


def _proof(job: TrainingJob, bundle: Bundle) -> SampleSet:
    """What to judge the update on."""
    limit = min(job.max_samples, PROOF_SAMPLES)
    samples = read_evaluation_set(
        job.samples_db,
        bundle.manifest.inputs,
        since_sample=job.from_sample,
        limit=limit,
        task=job.task,
        mixture=_mixture(job),
    )
    return of_this_bundle(samples, bundle.manifest)


def _embedded(
    job: TrainingJob, bundle: Bundle, base: Weights, samples: Samples, proof: SampleSet
) -> tuple[Samples, SampleSet, int]:
    """The samples as the head sees them, and how many passed the frozen part for that."""
    embedder = Embedder(bundle, base, EmbeddingCache(job.embeddings_file), threads=job.limits.threads)
    judged, trained = (embedder.embed(part.ids, part.features) for part in (proof, samples))
    if not embedder.remember([(proof.ids, judged), (samples.ids, trained)]):
        _say("the embeddings are not kept: the disk refuses")
    samples, proof = replace(samples, features=trained.features), replace(proof, features=judged.features)
    return samples, proof, trained.computed + judged.computed


def _write_update(job: TrainingJob, outcome: LocalRound, folder: Path) -> WorkDone:
    coded = code_update(outcome.delta, job.coding, _residual(job))
    write_file(folder / UPDATE_FILE, coded.payload)
    if outcome.personal:
        write_file(folder / PERSONAL_FILE, encode_weights(outcome.personal))
    if job.lineage is not None and job.coding != "fp32":
        write_file(folder / RESIDUAL_FILE, encode_residual(job.lineage, coded.residual))
    return WorkDone(metrics={**outcome.metrics, "coding-error": coded.error})


def _residual(job: TrainingJob) -> Weights | None:
    """What the coding of the update before lost; a damaged one costs its own round's error, not this round."""
    if job.lineage is None:
        return None
    try:
        return read_residual(job.residual_file, job.lineage)
    except (DataError, StorageError) as error:
        _say(f"the residual is left out: {error}")
        return None


def _adapt(job: AdaptationJob, bundle: Bundle, release: Weights, folder: Path) -> WorkDone | WorkFailed:
    """What is imported here no round needs."""
    from edge_agent.training.adaptation import follow

    try:
        followed = follow(job, bundle, release)
    except DataError as error:
        return failure(error, "bad-samples")
    if followed.overlay is not None:
        write_file(folder / OVERLAY_FILE, followed.overlay)
    return WorkDone(metrics=followed.metrics)


def _evaluate(job: EvaluationJob, bundle: Bundle, weights: Weights) -> WorkDone | WorkFailed:
    samples = read_evaluation_set(
        job.samples_db, bundle.manifest.inputs, since_sample=job.since_sample, limit=job.max_samples
    )
    samples = of_this_bundle(samples, bundle.manifest)
    if len(samples.labels) == 0:
        return WorkFailed(reason="too-few-samples", detail="no labelled holdout or proof sample")
    try:
        metrics = evaluate_tasks(bundle, weights, samples, threads=job.limits.threads)
    except DataError as error:
        return failure(error, "bad-samples")
    return WorkDone(metrics=metrics)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
