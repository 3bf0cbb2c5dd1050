"""The data that a bundle's monitors are calibrated with: in the order in which it was measured, labels beside it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.observed import Observed
from edge_agent.errors import DataError


@dataclass(frozen=True, slots=True)
class Reference:
    """Held-out samples as the bundle's own weights serve them, in the order of their times.

    Attributes:
        observed: n samples; features and outputs as the gateway's monitors will see them.
        losses: (n,) float64, >= 0, ``inf`` where the output was not finite (``drift.losses.sample_losses``).
        labels: (n,) class numbers or targets.
        classes: of a classification; None: a regression.
        segments: (n,) int64, rising from 0: rows of one segment follow each other in time; blocks of neighbours that
            a calibration draws end with the segment (a recording, a window block).
        names, units: f entries each, what the features are called and measured in.
        said: what a regression's values are called; empty: by their numbers.
    """

    observed: Observed
    losses: NDArray[np.float64]
    labels: NDArray[Any]
    classes: int | None
    segments: NDArray[np.int64]
    names: tuple[str, ...]
    units: tuple[str, ...]
    said: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse columns of different lengths, by name."""
        rows = len(self.observed)
        for name, column in (("losses", self.losses), ("labels", self.labels), ("segments", self.segments)):
            if column.shape != (rows,):
                raise DataError(f"reference: {name} of shape {column.shape} beside {rows} samples")

    def __len__(self) -> int:
        return len(self.observed)
