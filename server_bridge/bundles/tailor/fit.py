"""Training one task's block on the bridge."""

from collections.abc import Callable
from pathlib import Path

from edge_agent.errors import DataError, WireError
from edge_agent.model.bundle import WEIGHTS, Bundle, load_bundle, refuse_taken, write_bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.model.training_step import TrainingStep
from edge_agent.wire.tasks import task_named
from edge_agent.wire.tensors import Weights, encode_weights
from server_bridge.bundles.calibrate import Outputs, Score
from server_bridge.bundles.fit import GRAPH, Epoch, FitSettings, train_epochs
from server_bridge.bundles.monitors import Noted, Told
from server_bridge.bundles.tailor.scoring import read_task_data, rows_of, scores_by_task, task_monitors


def fit_task(
    source: Path,
    task: str,
    train: Path,
    calibration: Path,
    settings: FitSettings,
    out: Path,
    *,
    on_epoch: Callable[[Epoch], None] = lambda epoch: None,
    told: Told = lambda name, share: None,
    noted: Noted = lambda notes: None,
) -> Bundle:
    """Train a task's block from the bundle's weights, calibrate, write a new bundle.

    Args:
        source: the directory of a bundle with tasks.
        task: whose block; its rows of the data alone are trained on, and every other task stays as it is.
        train: NPZ to fit, rows of any task.
        calibration: NPZ held out of it, rows of any task.
        settings: see `FitSettings`; the graph is the task's ``<task>-adam``, or its first, where none is named.
        out: a directory that does not exist, or is empty.
        on_epoch: told of each epoch.
        told: of the calibration's progress.
        noted: given what an operator should know of the calibration.

    Raises:
        ConfigError: the false alarms that are asked for make no sense for the stream.
        DataError: the bundle, the task or the data are unfit (named), or the loss stops being finite.
        StorageError: the bundle cannot be written.
    """
    refuse_taken(out)
    bundle = load_bundle(source)
    _refuse_task(bundle, task)
    manifest = bundle.manifest
    data = read_task_data(train, manifest)
    rows, held_out = data.rows(rows_of(data, task)), read_task_data(calibration, manifest)
    if len(rows) == 0:
        raise DataError(f"{train} has no rows of task {task!r}", "name it in the array 'task'")
    step = TrainingStep(bundle, _graph(bundle, task, settings), bundle.initial_weights(), threads=settings.threads)
    weights = train_epochs(step, rows, settings, on_epoch)
    monitors = task_monitors(
        manifest,
        lambda name: outputs_of_bundle(bundle, weights, name),
        held_out,
        batch_size=settings.monitor_batch,
        seed=settings.seed,
        wish=settings.wish,
        told=told,
    )
    files = {name: bundle.read(name) for name in manifest.files} | {WEIGHTS: encode_weights(weights)}
    noted(monitors.notes)
    return write_bundle(out, *monitors.in_bundle(manifest, files))


def score_tasks(bundle: Bundle, data: Path) -> dict[str, Score]:
    """How a bundle's own weights do on each task's rows of a data file."""
    rows = read_task_data(data, bundle.manifest)
    weights = bundle.initial_weights()
    return scores_by_task(bundle.manifest, lambda task: outputs_of_bundle(bundle, weights, task), rows)


def outputs_of_bundle(bundle: Bundle, weights: Weights, task: str) -> Outputs:
    """What predicts a task's rows under given weights."""
    model = InferenceModel(bundle, weights, task=task)
    return lambda features: model.run(features)[model.primary]


def _graph(bundle: Bundle, task: str, settings: FitSettings) -> str:
    names = [graph.name for graph in bundle.manifest.training if graph.task == task]
    if settings.graph in names:
        return settings.graph
    if settings.graph or not names:
        raise DataError(f"task {task!r} has no training graph {settings.graph!r}", f"it has: {', '.join(names)}")
    return f"{task}-{GRAPH}" if f"{task}-{GRAPH}" in names else names[0]


def _refuse_task(bundle: Bundle, task: str) -> None:
    try:
        found = task_named(bundle.manifest, task)
    except WireError as error:
        raise DataError(error.problem) from None
    if found is None:
        raise DataError(f"bundle {bundle.manifest.name!r} has no tasks", "make one with `server-bridge bundle tailor`")
