"""Which graph and which tensors a bundle has for a task."""

from edge_agent.wire.errors import WireError
from edge_agent.wire.manifest import Manifest, TaskSpec
from edge_agent.wire.tensors import Weights

_ROLE = "task:"


def task_names(manifest: Manifest) -> tuple[str, ...]:
    """The bundle's tasks, the one of samples that name none first; empty for a bundle without tasks."""
    return tuple(task.name for task in manifest.tasks)


def task_named(manifest: Manifest, name: str | None) -> TaskSpec | None:
    """A task of the bundle; ``None``: the first. A bundle without tasks has one graph for all, and gives ``None``.

    Raises:
        WireError: the bundle has tasks, but none of that name (those it has are named).
    """
    if not manifest.tasks:
        return None
    for task in manifest.tasks:
        if name in (None, task.name):
            return task
    have = ", ".join(repr(task) for task in task_names(manifest))
    raise WireError("manifest", f"bundle {manifest.name!r} has no task {name!r} (it has {have})")


def task_classes(manifest: Manifest) -> dict[str, int]:
    """The number of classes of each task; empty for a regression, and for a bundle without tasks."""
    return {task.name: task.classes for task in manifest.tasks if task.classes is not None}


def classes_of(manifest: Manifest, name: str | None) -> int | None:
    """The number of classes of a task; ``None`` for a regression.

    Raises:
        WireError: as :func:`task_named`.
    """
    task = task_named(manifest, name)
    return manifest.classes if task is None else task.classes


def seen_by(manifest: Manifest, name: str | None) -> Manifest:
    """The manifest as one task sees it: with its number of classes.

    Raises:
        WireError: as :func:`task_named`.
    """
    task = task_named(manifest, name)
    return manifest if task is None else manifest.model_copy(update={"classes": task.classes})


def weights_of(manifest: Manifest, weights: Weights, task: TaskSpec | None) -> Weights:
    """The tensors that the task's inference graph takes: its own, and those of no task."""
    if task is None:
        return weights
    roles = {spec.name: spec.role for spec in manifest.trainable}
    return {
        name: tensor
        for name, tensor in weights.items()
        if roles[name] == _ROLE + task.name or not roles[name].startswith(_ROLE)
    }
