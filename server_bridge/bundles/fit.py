"""Training a bundle's weights by its own graph, on the bridge."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from edge_agent.drift.calibration import refuse_few
from edge_agent.drift.label_free import LABEL_FREE_FILE
from edge_agent.errors import DataError
from edge_agent.model.bundle import WEIGHTS, Bundle, load_bundle, refuse_taken, write_bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.model.training_step import TrainingStep
from edge_agent.wire.tensors import Weights, encode_weights
from server_bridge.bundles.calibrate import BATCH_SIZE_DEFAULT, Score, outputs_on, score
from server_bridge.bundles.data import LabelledData, read_data
from server_bridge.bundles.label_free import label_free_file
from server_bridge.bundles.monitors import Noted, Told, monitors_on
from server_bridge.bundles.wish import Wish

GRAPH = "adam"
_OF_A_PART = "; a part is fitted by a graph of `bundle build --subset`, a head by rounds"


@dataclass(frozen=True)
class FitSettings:
    """How to train.

    Args:
        epochs: passes over the data.
        seed: of the shuffles and the calibration's resampling.
        learning_rate: of the graph's optimiser.
        batch_size: samples a step.
        monitor_batch: labelled samples a batch of the drift monitor.
        threads: of the training step; results repeat bit for bit at a fixed count.
        graph: one of the bundle's that takes labels; ``adam``, or the first if there is none, where it is empty.
        scalars: of the graph, where its defaults are not wanted.
        wish: how many false alarms the bundle's monitors may give.
    """

    epochs: int
    seed: int = 0
    learning_rate: float = 0.003
    batch_size: int = 32
    monitor_batch: int = BATCH_SIZE_DEFAULT
    threads: int = 1
    graph: str = ""
    scalars: Mapping[str, float] = field(default_factory=dict)
    wish: Wish = field(default_factory=Wish)


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
    told: Told = lambda name, share: None,
    noted: Noted = lambda notes: None,
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
        told: of the calibration's progress.
        noted: given what an operator should know of the calibration.

    Raises:
        ConfigError: the false alarms that are asked for make no sense for the stream.
        DataError: the bundle or the data are unfit (named), or the loss stops being finite.
        StorageError: the bundle cannot be written.
    """
    refuse_taken(out)
    bundle = load_bundle(source)
    manifest = bundle.manifest
    data = read_data(train, manifest.inputs, manifest.classes, manifest.ignored_label)
    held_out = read_data(calibration, manifest.inputs, manifest.classes, manifest.ignored_label)
    refuse_few(len(held_out), settings.monitor_batch)
    trainer = TrainingStep(bundle, chosen_graph(bundle, settings), bundle.initial_weights(), threads=settings.threads)
    weights = train_epochs(trainer, data, settings, on_epoch)
    model = InferenceModel(bundle, weights)
    monitors = monitors_on(
        manifest,
        model.run,
        held_out,
        batch_size=settings.monitor_batch,
        wish=settings.wish,
        seed=settings.seed,
        told=told,
    )
    files = {name: bundle.read(name) for name in manifest.files} | {WEIGHTS: encode_weights(weights)}
    if LABEL_FREE_FILE in files:
        files |= label_free_file(manifest, model.run, held_out, seed=settings.seed)
    noted(monitors.notes)
    return write_bundle(out, *monitors.in_bundle(manifest, files))


def score_bundle(bundle: Bundle, data: Path) -> Score:
    """How a bundle's own weights do on a data file, its holdout left out."""
    manifest = bundle.manifest
    rows = read_data(data, manifest.inputs, manifest.classes, manifest.ignored_label)
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
        losses = [_step(trainer, data.rows(batch), settings) for batch in batches]
        on_epoch(Epoch(number, float(np.mean(losses))))
    return trainer.weights()


def chosen_graph(bundle: Bundle, settings: FitSettings) -> str:
    """The name of the training graph that fits the bundle.

    Raises:
        DataError: the bundle has none of that name, or it takes no labels or no whole model (named).
    """
    whole = [spec for spec in bundle.manifest.training if spec.label_input and spec.embedding is None]
    fitting = [spec.name for spec in whole if spec.task is None]
    if whole and not fitting:
        tasks = ", ".join(task.name for task in bundle.manifest.tasks)
        raise DataError(f"bundle {bundle.manifest.name!r} is trained task by task", f"give --task, one of {tasks}")
    if not settings.graph:
        return GRAPH if GRAPH in fitting or not fitting else fitting[0]
    asked = bundle.training_graph(settings.graph)
    if settings.graph not in fitting:
        raise DataError(
            f"training graph {settings.graph!r} does not fit a whole model to labels",
            f"these do: {', '.join(fitting)}{_OF_A_PART if asked.embedding else ''}",
        )
    return settings.graph


def _step(trainer: TrainingStep, batch: LabelledData, settings: FitSettings) -> float:
    loss = trainer.step(batch.features, batch.labels, learning_rate=settings.learning_rate, scalars=settings.scalars)
    reports = trainer.reports
    if not np.isfinite(loss) or (reports.get("skipped") and reports["gradient_norm"] != 0):
        what = "loss" if not np.isfinite(loss) else "step"
        raise DataError(f"the training {what} is not finite", "lower the learning rate")
    return loss
