"""The worker process: ``python -m edge_agent.training.worker JOB.json [PARENT_PID]``.

It reads the job, confines itself, works, and writes its result beside the job; the exit status
is 0 whenever a result was written.
"""

import sys
from pathlib import Path

from edge_agent.errors import DataError, EdgeError, WireError
from edge_agent.link.durable import read_file, write_file
from edge_agent.model.bundle import Bundle, load_bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.samples.reading import read_evaluation_set, read_training_set
from edge_agent.training.confinement import confine, die_with_parent, is_at_its_cap
from edge_agent.training.evaluation import evaluate
from edge_agent.training.job import (
    RESULT_FILE,
    UPDATE_FILE,
    EvaluationJob,
    FailureReason,
    Job,
    TrainingJob,
    WorkDone,
    WorkFailed,
    read_job,
)
from edge_agent.training.local_round import run_local_round
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.codec import encode
from edge_agent.wire.tensors import Weights, check_weights, decode_weights
from edge_agent.wire.updates import encode_update

DETAIL_CHARS = 1000
ALLOCATION_FAILURES = ("Failed to allocate memory", "bad_alloc", "bad allocation")
JOB_CAP_BYTES = 1024 * 1024


def main(arguments: list[str]) -> int:
    """Do the job named on the command line."""
    job_path = Path(arguments[0])
    if len(arguments) > 1:
        die_with_parent(int(arguments[1]))
    result = carry_out(job_path)
    write_file(job_path.parent / RESULT_FILE, encode(result))
    return 0


def carry_out(job_path: Path) -> WorkDone | WorkFailed:
    """Read a job, confine this process as it says, and work; an update is written beside it."""
    try:
        job = read_job(read_file(job_path, cap_bytes=JOB_CAP_BYTES))
        confine(job.limits)
        bundle, weights = _load(job)
        if isinstance(job, TrainingJob):
            return _train(job, bundle, weights, job_path.parent / UPDATE_FILE)
        return _evaluate(job, bundle, weights)
    except MemoryError:
        return WorkFailed(reason="out-of-memory", detail="the cap on address space was reached")
    except (EdgeError, WireError) as error:
        return failure(error, "bad-job")


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
    return bundle, weights


def _train(job: TrainingJob, bundle: Bundle, base: Weights, update_path: Path) -> WorkDone | WorkFailed:
    bundle.training_graph(job.training_graph)
    samples = read_training_set(
        job.samples_db, bundle.manifest.inputs, from_sample=job.from_sample, limit=job.max_samples
    )
    try:
        outcome = run_local_round(bundle, base, samples.features, samples.labels, job)
    except DataError as error:
        return failure(error, "bad-samples")
    if isinstance(outcome, WorkFailed):
        return outcome
    write_file(update_path, encode_update(outcome.delta, job.coding))
    return WorkDone(metrics=outcome.metrics)


def _evaluate(job: EvaluationJob, bundle: Bundle, weights: Weights) -> WorkDone | WorkFailed:
    samples = read_evaluation_set(
        job.samples_db, bundle.manifest.inputs, since_sample=job.since_sample, limit=job.max_samples
    )
    if len(samples.labels) == 0:
        return WorkFailed(reason="too-few-samples", detail="no labelled holdout or proof sample")
    model = InferenceModel(bundle, weights, threads=job.limits.threads)
    try:
        evaluation = evaluate(model, bundle.manifest, samples.features, samples.labels)
    except DataError as error:
        return failure(error, "bad-samples")
    return WorkDone(metrics=evaluation.metrics())


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
