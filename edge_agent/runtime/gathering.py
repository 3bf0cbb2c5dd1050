"""What waits for the recorder, put together: one transaction for many reads of the source."""

import queue
from collections.abc import Sequence
from itertools import chain, groupby
from typing import Any, TypeVar

import numpy as np

from edge_agent.runtime.pipeline import Recordable
from edge_agent.samples.record import Label, SampleBatch
from edge_agent.serving.server import Served

GATHERED_SAMPLES = 512
"""Of a transaction: at a batch of one a sample then costs 20 us of storing, not 385 (measured)."""
GATHERED_BYTES = 2 * 1024 * 1024
"""Features of a transaction: they are copied once more when they are put together."""

Part = tuple[SampleBatch, Served]
_Entry = TypeVar("_Entry")


def gather(waiting: "queue.Queue[Recordable]", first: Recordable, *, most_samples: int) -> list[Recordable]:
    """``first`` and what waits behind it by now, in order; nothing is waited for.

    Args:
        most_samples: no more is taken once so many are there.
    """
    gathered = [first]
    samples, size_bytes = _samples(first), _feature_bytes(first)
    while samples < most_samples and size_bytes < GATHERED_BYTES:
        try:
            item = waiting.get_nowait()
        except queue.Empty:
            break
        gathered.append(item)
        samples += _samples(item)
        size_bytes += _feature_bytes(item)
    return gathered


def put_together(items: Sequence[Recordable]) -> tuple[list[Part], list[Label]]:
    """Batches side by side where one model predicted them, in order; and all labels, in order.

    A batch whose columns are not of one length is left alone, so that it is refused for what it is.
    """
    served = [(item.batch, item.served) for item in items if item.batch is not None and item.served is not None]
    parts = [_joined(list(members)) for _, members in groupby(served, key=_kind)]
    return parts, [label for item in items for label in item.labels]


def _kind(part: Part) -> tuple[Any, ...]:
    """What is equal for batches that can stand side by side."""
    batch, served = part
    n = len(batch.ids)
    lengths = {len(batch.times), len(served.outputs), *(len(array) for array in batch.features.values())}
    lengths |= {len(column) for column in (batch.groups, batch.holdouts, batch.tasks) if column}
    whole = lengths == {n}
    shapes = tuple((name, array.dtype.str, array.shape[1:]) for name, array in batch.features.items())
    made_by = (served.bundle, served.weights, served.version, served.cohort, served.outputs.shape[1:])
    return (whole or id(batch), shapes, made_by)


def _joined(parts: list[Part]) -> Part:
    if len(parts) == 1:
        return parts[0]
    batches = [batch for batch, _ in parts]
    last = parts[-1][1]
    outputs = np.concatenate([served.outputs for _, served in parts])
    whole = SampleBatch(
        ids=_chained([batch.ids for batch in batches]),
        times=_chained([batch.times for batch in batches]),
        features={name: np.concatenate([batch.features[name] for batch in batches]) for name in batches[0].features},
        groups=_chained([batch.groups or [None] * len(batch.ids) for batch in batches]),
        holdouts=_chained([batch.holdouts or [False] * len(batch.ids) for batch in batches]),
        tasks=_chained([batch.tasks or [None] * len(batch.ids) for batch in batches]),
    )
    return whole, Served(outputs, last.bundle, last.weights, last.version, last.cohort)


def _chained(columns: list[list[_Entry]]) -> list[_Entry]:
    return list(chain.from_iterable(columns))


def _samples(item: Recordable) -> int:
    return max(len(item.labels), 0 if item.batch is None else len(item.batch.ids))


def _feature_bytes(item: Recordable) -> int:
    return 0 if item.batch is None else sum(array.nbytes for array in item.batch.features.values())
