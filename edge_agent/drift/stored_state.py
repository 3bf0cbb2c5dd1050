"""A monitor's state as it was stored: taken only as it must be."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import DataError


def fitting(
    monitor: str, fresh: Mapping[str, NDArray[Any]], stored: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """Copies of the stored arrays.

    Args:
        monitor: whose state it is, for the error.
        fresh: the arrays of a state that has seen nothing, whose names, shapes and types they must have.
        stored: by name; others are ignored.

    Raises:
        DataError: an array is missing or of another shape or type (named).
    """
    for name, array in fresh.items():
        found = stored.get(name)
        if found is None or found.shape != array.shape or found.dtype != array.dtype:
            raise DataError(f"the stored state of {monitor} has no fitting {name!r}")
    return {name: np.array(stored[name]) for name in fresh}
