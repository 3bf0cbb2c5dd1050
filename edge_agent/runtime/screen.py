"""A bundle's fault screen."""

import math
from dataclasses import dataclass

import numpy as np

from edge_agent.drift import faults
from edge_agent.drift.faults import FaultParams
from edge_agent.drift.observed import Observed
from edge_agent.model.bundle import Bundle
from edge_agent.samples.record import SampleBatch


@dataclass(frozen=True, slots=True)
class Screen:
    """A bundle's: the constants, and the inputs' names in the manifest's order."""

    params: FaultParams
    inputs: tuple[str, ...]

    def seen(self, batch: SampleBatch) -> Observed | None:
        """A batch as the screen sees it; None: it is not of this bundle's inputs, and the store will refuse it."""
        n = len(batch.ids)
        columns = [batch.features.get(name) for name in self.inputs]
        if n == 0 or len(batch.times) != n or any(column is None or len(column) != n for column in columns):
            return None
        flat = [np.asarray(column).reshape(n, -1) for column in columns]
        features = flat[0] if len(flat) == 1 else np.concatenate(flat, axis=1)
        if features.shape[1] != self.params.channels.columns:
            return None
        return Observed(batch.ids, np.array(batch.times, np.float64), features, features[:, :0])


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
