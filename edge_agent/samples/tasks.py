"""A batch of samples, parted by the tasks that they belong to."""

from collections.abc import Sequence

from edge_agent.samples.record import SampleBatch


def by_task(batch: SampleBatch, tasks: Sequence[str]) -> tuple[list[SampleBatch], dict[str, list[str]]]:
    """Batches of one task each, every sample's task named, the order within a task kept.

    Args:
        batch: samples, each of a named task or of none.
        tasks: the bundle's, the first being that of samples that name none; empty for a bundle without
            tasks, which takes a batch as it is.

    Returns:
        The batches, in the order in which their tasks appear, and the ids of the samples whose task the
        bundle does not have, by the task's name.
    """
    if not tasks:
        return [batch], {}
    named = [task or tasks[0] for task in batch.tasks] or [tasks[0]] * len(batch.ids)
    places: dict[str, list[int]] = {}
    for place, task in enumerate(named):
        places.setdefault(task, []).append(place)
    parts = [_part(batch, rows, task) for task, rows in places.items() if task in tasks]
    return parts, {task: [batch.ids[row] for row in rows] for task, rows in places.items() if task not in tasks}


def task_of(batch: SampleBatch) -> str | None:
    """The task of a batch of one task; ``None`` where no sample names one."""
    return batch.tasks[0] if batch.tasks else None


def _part(batch: SampleBatch, rows: list[int], task: str) -> SampleBatch:
    whole = len(rows) == len(batch.ids)
    return SampleBatch(
        ids=[batch.ids[row] for row in rows],
        times=[batch.times[row] for row in rows],
        features=batch.features if whole else {name: array[rows] for name, array in batch.features.items()},
        groups=[batch.groups[row] for row in rows] if batch.groups else [],
        holdouts=[batch.holdouts[row] for row in rows] if batch.holdouts else [],
        tasks=[task] * len(rows),
    )
