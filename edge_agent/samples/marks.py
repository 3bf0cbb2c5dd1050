"""Checksums on the way through a chunk's features: a few of its samples are read, and checked, without the rest.

They are kept in memory only: of a chunk of before the start the features are read whole.
"""

from collections.abc import Iterator, Sequence
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

STEP_BYTES = 48 * 1024
"""Between two marks, about: each call that checks more than 5 kB lets other threads in, which takes a while."""
Mark = tuple[int, int]
"""A row, and the CRC-32 of all that lies before it."""
BEGIN: Mark = (0, 0)


def marked(marks: Sequence[Mark], views: Sequence[memoryview], row_bytes: int) -> list[Mark]:
    """The marks after further rows, the last behind the last row.

    Args:
        marks: before them, from ``BEGIN`` on.
        views: the rows, one portion after the other.
    """
    found, step = list(marks), max(1, STEP_BYTES // max(1, row_bytes))
    for view in views:
        for start in range(0, len(view), step * row_bytes):
            some = view[start : start + step * row_bytes]
            row, checksum = found[-1]
            if len(found) > 1 and row - found[-2][0] + len(some) // row_bytes <= step:
                found.pop()  # few rows at a time do not need a mark each
            found.append((row + len(some) // row_bytes, crc32(some, checksum)))
    return found


def stretches(marks: Sequence[Mark], rows: NDArray[np.intp]) -> Iterator[tuple[Mark, Mark]]:
    """The marks around stretches that hold some rows (which rise), in order."""
    steps = sorted(set(np.searchsorted([row for row, _ in marks[1:]], rows, side="right").tolist()))
    begun = 0
    for place, step in enumerate(steps):
        if place + 1 == len(steps) or steps[place + 1] > step + 1:
            yield marks[steps[begun]], marks[step + 1]
            begun = place + 1
