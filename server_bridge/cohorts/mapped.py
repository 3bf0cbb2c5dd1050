"""Arrays mapped from files: read like any other, and let go of once read."""

import mmap
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def release_pages(arrays: Iterable[NDArray[Any]]) -> None:
    """Take read-only files that these arrays are mapped from out of the process's memory.

    The system keeps what it has room for and reads the rest again when it is needed: values stay
    as they are. Arrays in memory, and files mapped for writing, are left alone.
    """
    mappings = {id(mapping): mapping for array in arrays if (mapping := _read_only_mapping(array)) is not None}
    for mapping in mappings.values():
        mapping.madvise(mmap.MADV_DONTNEED)


def _read_only_mapping(array: NDArray[Any]) -> mmap.mmap | None:
    """A private writable mapping would lose what was written to it."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and base.mode != "r":
            return None
        base = base.base
    return base if isinstance(base, mmap.mmap) else None
