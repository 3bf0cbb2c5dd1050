"""What ``loss-level`` remembers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.sequential.mixture import RECENT, Evidence, Past
from edge_agent.drift.sequential.params import WARMUP_MARGIN, LossLevelParams, array_of, arrays_of, distribution_of
from edge_agent.drift.sequential.table import KINDS, TILTS, Distribution, Table


@dataclass(frozen=True, eq=False)
class LossLevelState:
    """What the monitor remembers; 8 kB.

    Attributes:
        evidence: of a rise, since the start or the warm-up's end.
        distribution: that the losses are judged by.
        table: that follows from it; not stored.
        warmup: (warmup_batches x batch_size,) losses of the warm-up so far, NaN where none has come.
        warmup_left: samples still to come of a warm-up; 0: none goes on.
        samples: judged, over all weights.
        epoch: activations seen.
    """

    evidence: Evidence
    distribution: Distribution
    table: Table
    warmup: NDArray[np.float64]
    warmup_left: int = 0
    samples: int = 0
    epoch: int = 0

    @classmethod
    def start(cls, params: LossLevelParams) -> Self:
        """Nothing seen yet."""
        warmup = np.full(params.warmup_batches * params.batch_size, np.nan)
        return cls(Evidence.none(), params.distribution, table_of(params, params.distribution, 0), warmup)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays that give the state back bit for bit; their sizes depend on the params alone."""
        past = self.evidence.past
        return {
            "sums": self.evidence.sums,
            "climbs": self.evidence.climbs,
            "runs": self.evidence.runs,
            "losses": self.evidence.losses,
            "past": np.concatenate([past.old, past.block, past.recent.ravel()]),
            "warmup": self.warmup,
            "counters": np.array([self.warmup_left, self.samples, self.epoch, past.count], np.int64),
            **arrays_of(self.distribution),
        }

    @classmethod
    def from_arrays(cls, params: LossLevelParams, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """The state that :meth:`to_arrays` gave.

        Raises:
            DataError: the arrays are of another monitor, or of other constants (named).
        """
        size = params.warmup_batches * params.batch_size
        left, samples, epoch, count = (int(value) for value in array_of(arrays, "counters", 4, np.int64))
        past = array_of(arrays, "past", (RECENT + 2) * KINDS, np.float64)
        distribution = distribution_of(arrays)
        return cls(
            evidence=Evidence(
                array_of(arrays, "sums", TILTS, np.float64),
                array_of(arrays, "climbs", TILTS, np.float64),
                array_of(arrays, "runs", TILTS, np.int64),
                array_of(arrays, "losses", TILTS, np.float64),
                Past(count, past[:KINDS], past[2 * KINDS :].reshape(RECENT, KINDS), past[KINDS : 2 * KINDS]),
            ),
            distribution=distribution,
            table=table_of(params, distribution, epoch),
            warmup=array_of(arrays, "warmup", size, np.float64),
            warmup_left=left,
            samples=samples,
            epoch=epoch,
        )


def table_of(params: LossLevelParams, distribution: Distribution, epoch: int) -> Table:
    """What each loss says beside this distribution: the reference's, or from the first activation on a warm-up's."""
    if not epoch:
        return distribution.table(inflation=params.inflation, margin=params.margin)
    told = params.warmup_batches * params.batch_size + 1  # with the one that is imagined
    margin = max(params.margin, WARMUP_MARGIN)
    return distribution.table(inflation=params.inflation, margin=margin, body_rows=told)
