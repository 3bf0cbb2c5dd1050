"""Labelled data of several tasks, and how each task's graph does on its own rows."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.losses import sample_losses
from edge_agent.drift.task_answers import LEAST_ROWS, WIDTH, TaskAnswers
from edge_agent.errors import DataError
from edge_agent.wire.manifest import Manifest
from edge_agent.wire.tasks import seen_by, task_classes, task_names
from server_bridge.bundles.calibrate import Outputs, Score, outputs_on, score
from server_bridge.bundles.data import LabelledData, read_data
from server_bridge.bundles.makers import SENSOR_MAKERS, task_makers
from server_bridge.bundles.monitors import Monitors, Told, calibrated
from server_bridge.bundles.rates import rate_of_times
from server_bridge.bundles.reference import ordered_reference
from server_bridge.bundles.wish import Wish

_NOTHING_ASKED = Wish()

OutputsOf = Callable[[str], Outputs]
"""A task's name to what predicts its rows."""


def read_task_data(path: Path, manifest: Manifest) -> LabelledData:
    """Read a data file whose rows belong to a bundle's tasks; ``tasks`` names one for every row.

    Raises:
        DataError: as `read_data`; the bundle has no tasks; a row's task is none of the bundle's, or its label none of
            the task's classes.
    """
    classes = task_classes(manifest)
    if not classes:
        raise DataError(f"bundle {manifest.name!r} has no tasks", "make one with `server-bridge bundle tailor`")
    data = read_data(path, manifest.inputs, max(classes.values()))
    first = task_names(manifest)[0]
    tasks = np.full(len(data), first) if data.tasks is None else np.where(data.tasks == "", first, data.tasks)
    for task in np.unique(tasks).tolist():
        if task not in classes:
            raise DataError(f"{path} has rows of task {task!r}", f"the bundle has: {', '.join(classes)}")
        label = int(data.labels[tasks == task].max())
        if label >= classes[task]:
            raise DataError(f"{path}: label {label} of task {task!r} is outside 0..{classes[task] - 1}")
    return replace(data, tasks=tasks)


def rows_of(data: LabelledData, task: str) -> NDArray[np.int64]:
    """The places of a task's rows."""
    return np.flatnonzero(np.asarray(data.tasks) == task)


def scores_by_task(manifest: Manifest, model: OutputsOf, data: LabelledData) -> dict[str, Score]:
    """Loss and accuracy of each task that has rows, in the bundle's order."""
    scores = {}
    for task in task_names(manifest):
        rows = data.rows(rows_of(data, task))
        if len(rows):
            scores[task] = score(seen_by(manifest, task), outputs_on(model(task), rows), rows.labels)
    return scores


def task_monitors(
    manifest: Manifest,
    model: OutputsOf,
    data: LabelledData,
    *,
    batch_size: int,
    seed: int,
    wish: Wish = _NOTHING_ASKED,
    told: Told = lambda name, share: None,
) -> Monitors:
    """The monitors of losses, inputs, answers and sensors over the rows of all tasks as they come, each loss by its own
    task's output, and each answer by its own task's answers.

    The estimated accuracy and what is known of labels are left out: they are of one task.

    Raises:
        ConfigError: the wish makes no sense for this stream.
        DataError: too few rows, losses that say nothing, or false alarms that were asked for and are not supported.
    """
    losses, said = np.zeros(len(data)), list[NDArray[Any]]()
    classes, names = task_classes(manifest), task_names(manifest)
    each = [rows_of(data, task) for task in names]
    for task, places in zip(names, each, strict=True):
        rows = data.rows(places)
        said.append(outputs_on(model(task), rows) if len(places) else np.zeros((0, classes.get(task, 1)), np.float32))
        if len(places):
            losses[places] = sample_losses(manifest.loss, said[-1], rows.labels, delta=manifest.huber_delta)
    answers = TaskAnswers.of(said, [classes.get(task) for task in names])
    told_of = np.full((len(data), WIDTH), np.nan, np.float32)
    for place, places in enumerate(each):
        told_of[places] = answers(place, said[place])
    reference = ordered_reference(manifest, data, losses, told_of)
    reference = replace(reference, classes=max(task_classes(manifest).values()))
    rate = None if data.times is None else rate_of_times(reference.observed.times_s)
    monitors = calibrated(
        reference,
        manifest,
        batch_size=batch_size,
        wish=wish.with_stream(rate),
        seed=seed,
        told=told,
        makers=task_makers(answers),
        plain=SENSOR_MAKERS,
    )
    few = [task for place, task in enumerate(names) if not answers.judges(place)]
    note = f"what is said of {', '.join(few)} is not watched without labels: fewer than {LEAST_ROWS} rows each"
    return replace(monitors, notes=(*monitors.notes, note)) if few else monitors
