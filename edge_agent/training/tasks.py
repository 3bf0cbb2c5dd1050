"""Which task a round is about, and how good weights are on the samples of each."""

from dataclasses import replace

import numpy as np

from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.samples.record import SampleSet
from edge_agent.training.evaluation import Evaluation, Scores, scores
from edge_agent.training.job import TrainingJob
from edge_agent.wire.tasks import task_names
from edge_agent.wire.tensors import Weights


def of_its_task(job: TrainingJob, bundle: Bundle) -> TrainingJob:
    """The job, naming the task that its graph trains: a task's graph learns from that task's samples alone.

    Raises:
        DataError: the bundle has no such graph or task, or the order names another task than the graph's.
    """
    trained = bundle.training_graph(job.training_graph).task
    if trained is not None and job.task not in (None, trained):
        raise DataError(f"training graph {job.training_graph!r} is of task {trained!r}, the order of {job.task!r}")
    tasks = task_names(bundle.manifest)
    if job.task is not None and tasks and job.task not in tasks:
        raise DataError(f"the bundle has no task {job.task!r} (it has {', '.join(tasks)})")
    return job if trained is None else job.model_copy(update={"task": trained})


def evaluate_tasks(bundle: Bundle, weights: Weights, samples: SampleSet, *, threads: int) -> dict[str, int | float]:
    """Loss and accuracy over all samples, each by its own task's graph.

    Args:
        samples: of any of the bundle's tasks; those of a task that it does not have are left out.

    Returns:
        The metrics of :class:`Evaluation`; for a bundle with tasks also each task's, as ``<metric>.<task>``.

    Raises:
        DataError: samples do not fit the model.
    """
    tasks = task_names(bundle.manifest)
    if not tasks:
        model = InferenceModel(bundle, weights, threads=threads)
        return scores(model, bundle.manifest, samples.features, samples.labels).mean().metrics()
    named = np.array([task or tasks[0] for task in samples.tasks or [None] * len(samples.ids)])
    parts: dict[str, Scores] = {}
    for task in (task for task in tasks if task in named):
        rows = np.flatnonzero(named == task)
        model = InferenceModel(bundle, weights, threads=threads, task=task)
        features = {name: array[rows] for name, array in samples.features.items()}
        parts[task] = scores(model, bundle.manifest, features, samples.labels[rows])
    metrics = _joined(list(parts.values())).metrics()
    for task, part in parts.items():
        metrics |= {f"{name}.{task}": value for name, value in part.mean().metrics().items()}
    return metrics


def _joined(parts: list[Scores]) -> Evaluation:
    """Over the samples of all parts."""
    if not parts:
        return Evaluation(0, float("nan"), None)
    first = parts[0]
    right = None if first.right is None else np.concatenate([part.right for part in parts if part.right is not None])
    errors = None if first.errors is None else np.concatenate([p.errors for p in parts if p.errors is not None])
    return replace(first, losses=np.concatenate([p.losses for p in parts]), right=right, errors=errors).mean()
