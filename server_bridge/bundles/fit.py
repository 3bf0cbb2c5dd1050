"""Training a bundle's weights by its own graph, on the bridge."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge_agent.drift.calibration import refuse_few
from edge_agent.errors import DataError
from edge_agent.model.bundle import WEIGHTS, Bundle, file_digests, load_bundle, refuse_taken, write_bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.model.training_step import TrainingStep
from edge_agent.wire.tensors import Weights, encode_weights
from server_bridge.bundles.calibrate import BATCH_SIZE_DEFAULT, Score, calibrated_monitors, outputs_on, score
from server_bridge.bundles.data import LabelledData, read_data

GRAPH = "adam"


@dataclass(frozen=True)
class FitSettings:
    """How to train.

    Args:
        epochs: passes over the data.
        seed: of the shuffles and the calibration's resampling.
        learning_rate: of Adam.
        batch_size: samples a step.
        monitor_batch: labelled samples a batch of the drift monitor.
        threads: of the training step; results repeat bit for bit at a fixed count.
    """

    epochs: int
    seed: int = 0
    learning_rate: float = 0.003
    batch_size: int = 32
    monitor_batch: int = BATCH_SIZE_DEFAULT
    threads: int = 1


@dataclass(frozen=True)
class Epoch:
    """An epoch that is done: its number from 1, and the mean loss of its steps."""

    number: int
    loss: float


def fit_bundle(
    source: Path,
    train: Path,
    calibration: Path,
    settings: FitSettings,
    out: Path,
    *,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
) -> Bundle:
    """Train from the bundle's weights, calibrate on held-out data, write a new bundle.

    Rows with ``holdout`` true are used for neither.

    Args:
        source: a bundle's directory.
        train: NPZ to fit.
        calibration: NPZ held out of it, for the drift monitor.
        settings: see `FitSettings`.
        out: a directory that does not exist, or is empty.
        on_epoch: told of each epoch.

    Raises:
        DataError: the bundle or the data are unfit (named), or the loss stops being finite.
        StorageError: the bundle cannot be written.
    """
    refuse_taken(out)
    bundle = load_bundle(source)
    manifest = bundle.manifest
    data = read_data(train, manifest.inputs, manifest.classes)
    held_out = read_data(calibration, manifest.inputs, manifest.classes)
    refuse_few(len(held_out), settings.monitor_batch)
    trainer = TrainingStep(bundle, GRAPH, bundle.initial_weights(), threads=settings.threads)
    weights = train_epochs(trainer, data, settings, on_epoch)
    model = InferenceModel(bundle, weights)
    outputs = outputs_on(lambda features: model.run(features)[model.primary], held_out)
    monitors = calibrated_monitors(
        manifest, outputs, held_out.labels, batch_size=settings.monitor_batch, seed=settings.seed
    )
    files = {name: bundle.read(name) for name in manifest.files} | {WEIGHTS: encode_weights(weights)}
    changed = {"monitors": monitors, "files": file_digests(files)}
    return write_bundle(out, manifest.model_copy(update=changed), files)


def score_bundle(bundle: Bundle, data: Path) -> Score:
    """How a bundle's own weights do on a data file, its holdout left out."""
    manifest = bundle.manifest
    rows = read_data(data, manifest.inputs, manifest.classes)
    model = InferenceModel(bundle, bundle.initial_weights())
    outputs = outputs_on(lambda features: model.run(features)[model.primary], rows)
    return score(manifest, outputs, rows.labels)


def train_epochs(
    trainer: TrainingStep, data: LabelledData, settings: FitSettings, on_epoch: Callable[[Epoch], None]
) -> Weights:
    """The weights after the settings' passes over the data.

    Raises:
        DataError: the loss stops being finite.
    """
    rng = np.random.default_rng(settings.seed)
    for number in range(1, settings.epochs + 1):
        order = rng.permutation(len(data))
        batches = [order[start : start + settings.batch_size] for start in range(0, len(order), settings.batch_size)]
        losses = [_step(trainer, data.rows(batch), settings.learning_rate) for batch in batches]
        on_epoch(Epoch(number, float(np.mean(losses))))
    return trainer.weights()


def _step(trainer: TrainingStep, batch: LabelledData, learning_rate: float) -> float:
    loss = trainer.step(batch.features, batch.labels, learning_rate=learning_rate)
    if not np.isfinite(loss):
        raise DataError("the training loss is not finite", "lower the learning rate")
    return loss
