"""The label-free monitor of a bundle, from the bundle's reference."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.reference import Reference
from edge_agent.errors import DataError
from edge_agent.wire.manifest import MonitorSpec


def calibrate(
    reference: Reference,
    *,
    batch_size: int,
    rate: float,
    rng: np.random.Generator,
    progress: Callable[[float], None] | None = None,
) -> tuple[MonitorSpec, dict[str, NDArray[Any]]]:
    """The manifest's ``label-free`` entry, and its arrays for ``drift.safetensors``.

    Args:
        reference: in time order; features that share a name are one sensor's readings in a window.
        batch_size: served samples a batch.
        rate: false alarms a batch that are promised.
        rng: the only source of chance.
        progress: told the share that is done, 0 to 1.

    Raises:
        DataError: the reference does not support the rate, or is too short.
    """
    raise DataError("label-free: not calibrated yet")
