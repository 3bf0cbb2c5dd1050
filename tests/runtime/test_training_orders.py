from pathlib import Path

from edge_agent.runtime.training_orders import OperatorLimits, training_job
from edge_agent.training.job import Job, WorkerLimits
from edge_agent.wire.blobs import BlobReference
from edge_agent.wire.messages import Train

LIMITS = OperatorLimits(enabled=True, min_samples=1, max_rounds_per_hour=1, max_duration_s=1.0, worker=WorkerLimits())


def test_schedule_and_label_shift_reach_the_worker() -> None:
    digest = "a" * 64
    action = Train(
        adaptation="a1",
        round=1,
        bundle=digest,
        base=BlobReference(digest=digest, length=1, chunk_list=digest),
        cohort="root",
        training_graph="entropy-sgd",
        learning_rate=0.03,
        learning_rate_min=0.001,
        schedule="fed-ade",
        epochs=1,
        batch_size=8,
        min_samples=1,
        max_samples=8,
        seed=0,
    )
    common = Job(
        command_id="c1",
        duration_s=1.0,
        bundle_dir=Path("b"),
        bundle=digest,
        weights_file=Path("w"),
        weights=digest,
        samples_db=Path("s"),
        max_samples=8,
    )
    plain = training_job(common, action, LIMITS, from_sample=None)
    assert (plain.schedule, plain.learning_rate_min, plain.label_shift) == ("fed-ade", 0.001, False)
    told = action.model_copy(update={"config": {"clma-label-shift": True}})
    assert training_job(common, told, LIMITS, from_sample=None).label_shift
