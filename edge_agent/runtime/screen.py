"""A bundle's fault screen."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift import faults
from edge_agent.drift.faults import FaultParams
from edge_agent.drift.observed import Observed
from edge_agent.model.bundle import Bundle
from edge_agent.samples.record import FeatureArrays, SampleBatch


@dataclass(frozen=True, slots=True)
class Screen:
    """A bundle's: the constants, and the inputs' names in the manifest's order."""

    params: FaultParams
    inputs: tuple[str, ...]

    def seen(self, batch: SampleBatch) -> list[Observed] | None:
        """A batch as the screen sees it, in its portions; None: it is not of this bundle's inputs, and the store will
        refuse it."""
        n, times_s = len(batch.ids), np.array(batch.times, np.float64)
        found: list[Observed] = []
        start = 0
        for portion in batch.in_portions:
            features = self._flat(portion)
            if features is None:
                return None
            rows = slice(start, start + len(features))
            found.append(Observed(batch.ids[rows], times_s[rows], features, features[:, :0]))
            start += len(features)
        return found if 0 < n == start == len(times_s) else None

    def _flat(self, portion: FeatureArrays) -> NDArray[Any] | None:
        """(n, f) the inputs side by side; None: they are not this bundle's."""
        columns = [portion[name] for name in self.inputs if name in portion]
        if len(columns) < len(self.inputs) or len({len(column) for column in columns}) != 1:
            return None
        n = len(columns[0])
        flat = [np.asarray(column).reshape(n, -1 if n else self.params.channels.columns) for column in columns]
        features = flat[0] if len(flat) == 1 else np.concatenate(flat, axis=1)
        return features if features.shape[1] == self.params.channels.columns else None


def screen_of(bundle: Bundle) -> Screen | None:
    """A bundle's fault screen; None: it was built without one.

    Raises:
        DataError: its constants are no such.
    """
    manifest = bundle.manifest
    spec = manifest.monitors.get(faults.NAME)
    if spec is None:
        return None
    arrays = bundle.drift_arrays().get(faults.NAME, {})
    count = sum(math.prod(size for size in one.shape[1:] if isinstance(size, int)) for one in manifest.inputs)
    params = FaultParams.from_spec(spec, arrays, faults.channels_of(manifest, count))
    return Screen(params, tuple(one.name for one in manifest.inputs))
