"""Inner products of very long rows, in blocks of columns, in float64."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from server_bridge.cohorts.mapped import release_pages

BLOCK_COLUMNS = 65_536
BLOCK_VALUES = 1 << 17  # 1 MB in float64: stays in the cache
LEAST_COLUMNS = 1024  # fewer cost more in sums of products than the cache saves
MAPPED_VALUES = 1 << 22  # how much of mapped files stays in memory

Rows = NDArray[Any] | Sequence[NDArray[Any]]


def gram_matrix(
    matrix: Rows, *, origins: Sequence[NDArray[Any]] | None = None, center: bool = False
) -> NDArray[np.float64]:
    """The inner products of all pairs of rows.

    Args:
        matrix: (n, d) a row a client, or n rows (d,); they may be mapped from files.
        origins: n vectors (d,), subtracted from the rows; may be shared objects.
        center: whether the column means are then subtracted.

    Returns:
        (n, n) float64, symmetric, positive semi-definite up to rounding; not finite where a row
        is not, or where its square is too large for float64.

    Cost: O(n^2 d) time, O(n^2) memory and 1 MB (from 128 rows on n 8 kB) beside the input.
    """
    return _products(matrix, origins, center)[0]


def centred_gram(matrix: Rows) -> tuple[NDArray[np.float64], float]:
    """The inner products of the rows without their column means, and the sum of all squares before.

    Args:
        matrix: as :func:`gram_matrix`.
    """
    return _products(matrix, None, True)


def _products(matrix: Rows, origins: Sequence[NDArray[Any]] | None, center: bool) -> tuple[NDArray[np.float64], float]:
    rows = len(matrix)
    gram, means = np.zeros((rows, rows), np.float64), 0.0
    with np.errstate(invalid="ignore", over="ignore"):
        for block in _blocks(matrix, origins):
            if center:
                mean = block.mean(axis=0)
                block -= mean
                means += float(mean @ mean)
            gram += block @ block.T
        return gram, float(np.trace(gram)) + rows * means


def _blocks(matrix: Rows, origins: Sequence[NDArray[Any]] | None) -> Iterator[NDArray[np.float64]]:
    """Columns of all rows in float64; each is overwritten by the next."""
    rows = list(matrix)
    if not rows:
        return
    columns = max(LEAST_COLUMNS, BLOCK_VALUES // len(rows))
    whole = np.empty((len(rows), min(columns, rows[0].size)), np.float64)
    read = 0
    for start in range(0, rows[0].size, columns):
        block = whole[:, : rows[0].size - start]
        for number, row in enumerate(rows):
            block[number] = row[start : start + columns]
            if origins is not None:
                block[number] -= origins[number][start : start + columns]
        yield block
        read += block.size
        if read >= MAPPED_VALUES:
            release_pages(rows)
            read = 0
    release_pages(rows)


def distance(left: NDArray[Any], right: NDArray[Any]) -> float:
    """The Euclidean distance of two long vectors (d,), in float64, in blocks."""
    total = 0.0
    for start in range(0, left.size, BLOCK_COLUMNS):
        stop = start + BLOCK_COLUMNS
        difference = left[start:stop].astype(np.float64) - right[start:stop]
        total += float(difference @ difference)
    return float(np.sqrt(total))
