"""What waits for the recorder, put together: one transaction for many reads of the source."""

import queue
from collections.abc import Sequence
from itertools import chain
from typing import Protocol, TypeVar

import numpy as np

from edge_agent.runtime.pipeline import Recordable
from edge_agent.samples.record import Label, SampleBatch
from edge_agent.serving.server import Served

GATHERED_SAMPLES = 2_048
"""Of a transaction: so many share what a commit costs."""
GATHERED_BYTES = 4 * 1024 * 1024
"""Features of a transaction: they wait for it in memory."""
PORTION_BYTES = 64 * 1024
"""Features of a read that are left where they are: to put more of them side by side costs more than it spares."""

Part = tuple[SampleBatch, Served]
_Entry = TypeVar("_Entry")


class Waiting(Protocol):
    """What the recorder needs of a queue."""

    def get(self, block: bool = True, timeout: float | None = None) -> Recordable:
        """The next one; `queue.Empty` if none comes in time."""

    def get_nowait(self) -> Recordable:
        """The next one; `queue.Empty` if there is none."""

    def qsize(self) -> int:
        """How many wait."""

    def empty(self) -> bool:
        """Whether none waits."""


def gather(waiting: Waiting, first: Recordable, *, most_samples: int) -> list[Recordable]:
    """``first`` and what waits behind it by now, in order; nothing is waited for.

    Args:
        most_samples: no more is taken once so many are there, or features of ``GATHERED_BYTES``.
    """
    gathered: list[Recordable] = []
    samples = size_bytes = 0
    item: Recordable | None = first
    while item is not None:
        gathered.append(item)
        batch = item.batch
        if batch is None:
            samples += len(item.labels)
        else:
            samples += len(batch.ids)
            for array in batch.features.values():
                size_bytes += array.nbytes
        item = _next(waiting) if samples < most_samples and size_bytes < GATHERED_BYTES else None
    return gathered


def _next(waiting: Waiting) -> Recordable | None:
    try:
        return waiting.get_nowait()
    except queue.Empty:
        return None


def put_together(items: Sequence[Recordable]) -> tuple[list[Part], list[Label]]:
    """Batches side by side where one model predicted them, in order; and all labels, in order.

    A batch whose columns are not of one length is left alone, so that it is refused for what it is.
    """
    parts = [(item.batch, item.served) for item in items if item.batch is not None and item.served is not None]
    labels = _chained([item.labels for item in items])
    return ([_joined(parts)] if len(parts) > 1 and _all_fit(parts) else _side_by_side(parts)), labels


def _side_by_side(parts: Sequence[Part]) -> list[Part]:
    """Each batch beside the one before, where it fits."""
    alike: list[list[Part]] = []
    open_ended = False
    for part in parts:
        if open_ended and _fits(alike[-1][-1], part):
            alike[-1].append(part)
        else:
            alike.append([part])
            open_ended = _is_whole(part)
    return [_joined(members) for members in alike]


def _all_fit(parts: Sequence[Part]) -> bool:
    """Whether all fit side by side, told a column at a time; if not, :func:`_side_by_side` tells which do."""
    batches, served = [batch for batch, _ in parts], [made for _, made in parts]
    kinds = {(made.weights, made.version, made.bundle, made.cohort, made.outputs.shape[1:]) for made in served}
    counts = [len(batch.ids) for batch in batches]
    lengths = [[len(batch.times) for batch in batches], [len(made.outputs) for made in served]]
    names = batches[0].features
    if len(kinds) > 1 or {len(batch.features) for batch in batches} != {len(names)}:
        return False
    for name in names:
        arrays = [array for batch in batches if (array := batch.features.get(name)) is not None]
        if len(arrays) < len(batches) or len({(array.shape[1:], array.dtype) for array in arrays}) > 1:
            return False
        lengths.append([len(array) for array in arrays])
    optional = ([len(b.groups) for b in batches], [len(b.holdouts) for b in batches], [len(b.tasks) for b in batches])
    lengths += [[n or most for n, most in zip(column, counts, strict=True)] for column in optional if any(column)]
    return all(column == counts for column in lengths)


def _fits(last: Part, part: Part) -> bool:
    """Whether two batches can stand side by side; ``last`` is known to be whole, or stands alone."""
    (before, made_before), (batch, made) = last, part
    if made.weights != made_before.weights or made.version != made_before.version:
        return False
    if made.bundle != made_before.bundle or made.cohort != made_before.cohort:
        return False
    if made.outputs.shape[1:] != made_before.outputs.shape[1:] or len(batch.features) != len(before.features):
        return False
    n = len(batch.ids)
    for name, array in batch.features.items():
        other = before.features.get(name)
        if other is None or array.shape != (n, *other.shape[1:]) or other.dtype != array.dtype:
            return False
    if len(batch.times) != n or len(made.outputs) != n:
        return False
    return not (_odd(batch.groups, n) or _odd(batch.holdouts, n) or _odd(batch.tasks, n))


def _odd(column: Sequence[object], n: int) -> bool:
    return len(column) not in (0, n)


def _is_whole(part: Part) -> bool:
    """Whether every column has an entry a sample."""
    return _fits(part, part)


def _joined(parts: list[Part]) -> Part:
    if len(parts) == 1:
        return parts[0]
    batches = [batch for batch, _ in parts]
    last = parts[-1][1]
    outputs = np.concatenate([served.outputs for _, served in parts])
    embedded = [served.embeddings for _, served in parts if served.embeddings is not None]
    embeddings = np.concatenate(embedded) if len(embedded) == len(parts) else None
    wide = sum(array.nbytes for batch in batches for array in batch.features.values()) > PORTION_BYTES * len(batches)
    portions = [batch.features for batch in batches if batch.ids] or [batches[0].features]
    whole = SampleBatch(
        ids=_chained([batch.ids for batch in batches]),
        times=_chained([batch.times for batch in batches]),
        features={} if wide else {name: np.concatenate([one[name] for one in portions]) for name in portions[0]},
        groups=_filled([batch.groups for batch in batches], batches, None),
        holdouts=_filled([batch.holdouts for batch in batches], batches, False),
        tasks=_filled([batch.tasks for batch in batches], batches, None),
        portions=portions if wide else (),
    )
    return whole, Served(outputs, last.bundle, last.weights, last.version, last.cohort, embeddings, last.overlay)


def _chained(columns: list[list[_Entry]]) -> list[_Entry]:
    return list(chain.from_iterable(columns))


def _filled(columns: list[list[_Entry]], batches: list[SampleBatch], absent: _Entry) -> list[_Entry]:
    """An optional column of all batches; empty where none of them has it."""
    if not any(columns):
        return []
    if all(columns):
        return _chained(columns)
    return _chained([column or [absent] * len(batch.ids) for column, batch in zip(columns, batches, strict=True)])
