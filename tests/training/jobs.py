"""Jobs as the agent would write them, on the tiny bundle."""

from pathlib import Path

from edge_agent.model.bundle import Bundle
from edge_agent.training.job import EvaluationJob, TrainingJob
from edge_agent.wire.blobs import sha256_hex


def training_job(bundle: Bundle, samples_db: Path, **changes: object) -> TrainingJob:
    fields: dict[str, object] = {
        **_common(bundle, samples_db),
        "training_graph": "sgd",
        "learning_rate": 0.5,
        "epochs": 2,
        "batch_size": 8,
        "min_samples": 4,
        "seed": 7,
    }
    return TrainingJob.model_validate({**fields, **changes})


def evaluation_job(bundle: Bundle, samples_db: Path, **changes: object) -> EvaluationJob:
    return EvaluationJob.model_validate({**_common(bundle, samples_db), **changes})


def _common(bundle: Bundle, samples_db: Path) -> dict[str, object]:
    weights_file = bundle.path / "weights.safetensors"
    return {
        "command_id": "c1",
        "duration_s": 120.0,
        "bundle_dir": bundle.path,
        "bundle": bundle.digest,
        "weights_file": weights_file,
        "weights": sha256_hex(weights_file.read_bytes()),
        "samples_db": samples_db,
        "max_samples": 1000,
    }
