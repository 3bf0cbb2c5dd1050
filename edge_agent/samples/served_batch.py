"""What is served, checked and made a chunk of."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.samples.chunk import PART_NUMBERS, Chunk
from edge_agent.samples.layout import finite_rows
from edge_agent.samples.record import (
    ID_CHARS,
    TIME_LIMIT_S,
    Part,
    Predicted,
    SampleBatch,
    are_sample_ids,
    is_sample_id,
)
from edge_agent.samples.split import below_share, hashes_of, proof_rows


def check_batch(batch: SampleBatch, predicted: Predicted) -> None:
    """Whether a batch and its predictions can be stored.

    Raises:
        DataError: lengths, an id or a time are wrong (named).
    """
    n = len(batch.ids)
    lengths = {len(batch.times), len(predicted.outputs), *_lengths(batch)}
    lengths |= {len(column) for column in (batch.groups, batch.holdouts, batch.tasks) if column}
    if lengths != {n}:
        raise DataError(f"{n} sample ids stand beside columns of {sorted(lengths)} rows")
    if not are_sample_ids(batch.ids):
        name = next(name for name in batch.ids if not is_sample_id(name))
        raise DataError(f"sample id {name[:ID_CHARS]!r} must have 1 to {ID_CHARS} characters, none a control one")
    fit = np.abs(np.array(batch.times, np.float64)) < TIME_LIMIT_S
    if not fit.all():
        row = int(np.flatnonzero(~fit)[0])
        raise DataError(f"sample {batch.ids[row]!r}: time {batch.times[row]} is no time in seconds since 1970")


def _lengths(batch: SampleBatch) -> set[int]:
    """Rows of each input, in all portions."""
    names = {name for features in batch.in_portions for name in features}
    return {sum(len(features.get(name, ())) for features in batch.in_portions) for name in names}


def made_chunk(
    batch: SampleBatch,
    rows: Sequence[int] | None,
    *,
    first: int,
    layout: int,
    model: int,
    row_bytes: int,
    proof_share: float,
    now_s: float,
) -> Chunk:
    """A chunk of some rows of a batch, of all if None; where its features lie is to be set.

    Args:
        first: the insertion number of the first row.
        layout, model: their numbers.
        proof_share: of the samples, which training never reads.
        now_s: running time.
    """
    chosen = range(len(batch.ids)) if rows is None else rows
    hashes = None if any(batch.groups) or proof_share <= 0 else hashes_of(batch.ids)
    parts, times = parts_of(batch, proof_share, hashes), np.array(batch.times, np.float64)
    made = Chunk.made(
        first,
        layout,
        model,
        row_bytes,
        batch.ids if rows is None else [batch.ids[row] for row in rows],
        [batch.tasks[row] for row in chosen] if any(batch.tasks) else [],
        times if rows is None else times[rows],
        np.full(len(chosen), now_s, np.float64),
        parts if rows is None else parts[rows],
    )
    if hashes is not None:
        made.hashes = hashes if rows is None else hashes[rows]
    return made


def parts_of(batch: SampleBatch, proof_share: float, hashes: NDArray[np.uint64] | None) -> NDArray[np.uint8]:
    """(n,) what each sample may be used for, as places in ``PARTS``.

    Args:
        hashes: (n,) of the ids, where the split goes by them; None: not known.
    """
    n = len(batch.ids)
    parts = np.full(n, PART_NUMBERS[Part.TRAIN], np.uint8)
    keys = batch.ids
    if any(batch.groups):
        keys = [name if group is None else group for name, group in zip(batch.ids, batch.groups, strict=True)]
    proof = proof_rows(keys, proof_share) if hashes is None else below_share(hashes, proof_share)
    parts[proof] = PART_NUMBERS[Part.PROOF]
    if not batch.screened:
        finite = np.concatenate([finite_rows(features) for features in batch.in_portions])
        parts[~finite] = PART_NUMBERS[Part.UNFIT]
    if batch.holdouts:
        parts[np.array(batch.holdouts, np.bool_)] = PART_NUMBERS[Part.HOLDOUT]
    if batch.faulty is not None:
        parts[batch.faulty.any(axis=1)] = PART_NUMBERS[Part.UNFIT]
    return parts


def primary_outputs(predicted: Predicted, rows: list[int] | None) -> NDArray[np.float32]:
    """(n, k) the primary outputs of some rows; None: of all."""
    n = len(predicted.outputs)
    outputs = np.ascontiguousarray(predicted.outputs, dtype="<f4").reshape(n, -1)
    return outputs if rows is None else outputs[rows]
